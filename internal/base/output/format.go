package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// Format is the format of a command's answer.
type Format string

// The formats.
const (
	AsTable Format = "table"
	AsWide  Format = "wide"  // the table with all columns, independent of the terminal's width
	AsJSON  Format = "json"  // one document
	AsJSONL Format = "jsonl" // one document a line, as they occur
	AsYAML  Format = "yaml"
)

// Formats lists the formats of a command with one answer, and Streams those of a command with
// several.
var (
	Formats = []Format{AsTable, AsWide, AsJSON, AsYAML}
	Streams = []Format{AsTable, AsWide, AsJSON, AsJSONL, AsYAML}
)

// ParseFormat parses a value of --output.
func ParseFormat(text string, formats []Format) (Format, error) {
	if f := Format(text); slices.Contains(formats, f) {
		return f, nil
	}
	return "", fmt.Errorf("--output %q: want %s", text, OneOf(formats))
}

// OneOf lists values: "a, b or c".
func OneOf[T ~string](values []T) string {
	var out strings.Builder
	for i, v := range values {
		switch {
		case i > 0 && i == len(values)-1:
			out.WriteString(" or ")
		case i > 0:
			out.WriteString(", ")
		}
		out.WriteString(string(v))
	}
	return out.String()
}

// Data reports whether the format is for programs.
func (f Format) Data() bool { return f == AsJSON || f == AsJSONL || f == AsYAML }

// EncodeAll writes values as data: as one JSON array, or else one document each.
func EncodeAll[T any](f Format, to io.Writer, all []T) error {
	if f == AsJSON {
		return f.Encode(to, append([]T{}, all...), false) // [] and not null
	}
	for i := range all {
		if err := f.Encode(to, &all[i], true); err != nil {
			return err
		}
	}
	return nil
}

// Encode writes a value as data: as JSON on one line, or as a YAML document, which begins with ---
// if several may follow each other.
func (f Format) Encode(to io.Writer, v any, several bool) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	if f == AsYAML {
		document, err := yaml.JSONToYAML(escaped(text.Bytes()))
		if err != nil {
			return err
		}
		text.Reset()
		if several {
			text.WriteString("---\n")
		}
		text.Write(document)
	}
	_, err := to.Write(text.Bytes())
	return err
}

// escaped returns JSON with escapes for characters that YAML does not allow. They occur in strings
// only, where an escape means the same.
func escaped(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if r >= 0x7f && r < 0xa0 || r == 0xfeff || r == 0xfffe || r == 0xffff {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// EncodeIndented writes one value like Encode, with indented JSON.
func (f Format) EncodeIndented(to io.Writer, v any) error {
	if f == AsYAML {
		return f.Encode(to, v, false)
	}
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Count returns a number with its noun: "1 pod", "2 pods".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
