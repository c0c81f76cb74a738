// Package printer prints the answers of kubectl jettison in the formats of kubectl.
package printer

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/util/jsonpath"

	"jettison/internal/base/commandline"
	"jettison/internal/base/output"
)

// Formats in addition to those of package output.
const (
	asName         = "name"
	jsonpathPrefix = "jsonpath="
)

// Flag is the flag --output.
type Flag struct {
	text  string
	names bool // -o name
}

// Add adds the flag. names: the command prints objects that have a name.
func (f *Flag) Add(fs *pflag.FlagSet, names bool) {
	f.names = names
	usage := "table, wide, json, yaml or jsonpath=TEMPLATE"
	values := []string{"table", "wide", "json", "yaml", jsonpathPrefix}
	if names {
		usage = "table, wide, name, json, yaml or jsonpath=TEMPLATE"
		values = append(values, asName)
	}
	fs.StringVarP(&f.text, "output", "o", string(output.AsTable), usage)
	commandline.Values(fs, "output", values...)
}

// Format is a format of an answer.
type Format struct {
	// Table reports a table for people, and Wide one with all columns. Both are false for data.
	Table, Wide bool

	names bool
	data  output.Format
	path  *jsonpath.JSONPath
}

// Format returns the format of the flag. An error is a usage error.
func (f *Flag) Format() (out Format, err error) {
	if template, ok := strings.CutPrefix(f.text, jsonpathPrefix); ok {
		out.path = jsonpath.New("output").AllowMissingKeys(true)
		if !strings.Contains(template, "{") { // as in kubectl: .nodes[0].name
			template = "{." + strings.TrimPrefix(template, ".") + "}"
		}
		if err := out.path.Parse(template); err != nil {
			return out, commandline.Usage(fmt.Errorf("--output jsonpath: %w", err))
		}
		return out, nil
	}
	switch text := output.Format(f.text); {
	case text == output.AsTable, text == output.AsWide:
		out.Table, out.Wide = true, text == output.AsWide
	case text == output.AsJSON, text == output.AsYAML:
		out.data = text
	case text == asName && f.names:
		out.names = true
	default:
		values := []string{"table", "wide", "json", "yaml", "jsonpath=TEMPLATE"}
		if f.names {
			values = append([]string{asName}, values...)
		}
		return out, commandline.Usage(fmt.Errorf("--output %.40q: want %s", f.text, output.OneOf(values)))
	}
	return out, nil
}

// Data prints an answer as data. names are the names of its objects, as RESOURCE/NAME.
func (f *Format) Data(to io.Writer, answer any, names []string) error {
	switch {
	case f.names:
		for _, name := range names {
			if _, err := fmt.Fprintln(to, name); err != nil {
				return err
			}
		}
		return nil
	case f.path == nil:
		return f.data.EncodeIndented(to, answer)
	}
	// the names of fields are those of the JSON
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	var fields any
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	var out strings.Builder
	if err := f.path.Execute(&out, fields); err != nil {
		return err
	}
	_, err = io.WriteString(to, out.String()+"\n")
	return err
}
