package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"time"

	"go.yaml.in/yaml/v3"

	"jettison/internal/nearest"
	"jettison/internal/wholefile"
)

// maxSize of a file, in bytes.
const maxSize = 1 << 20

// Load reads the file at path over the defaults; an empty path is none. Errors are one line: the file, the line, the field, what is wrong.
func Load(ctx context.Context, path string) (*Cluster, error) {
	c := Default()
	if path == "" {
		return c, nil
	}
	f, err := wholefile.OpenStream(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("config: %s is larger than %d bytes: name the configuration's own file", path, maxSize)
	}
	if c, err = Parse(text); err != nil {
		return nil, fmt.Errorf("config %s: %w", path, err)
	}
	return c, nil
}

// Parse reads a file's text over the defaults.
func Parse(text []byte) (*Cluster, error) {
	c := Default()
	return c, c.read(text)
}

// lineError is what is wrong at a line.
func lineError(line int, format string, args ...any) error {
	return fmt.Errorf("line %d: %w", max(line, 1), fmt.Errorf(format, args...))
}

// read takes a file's text.
func (c *Cluster) read(text []byte) error {
	var doc, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return lineError(1, "the file is empty: want apiVersion: %s, kind: %s", APIVersion, Kind)
	} else if err != nil {
		return fmt.Errorf("not YAML: %w", err)
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return lineError(root.Line, "want fields, as in \"kind: %s\"", Kind)
	}
	if err := d.Decode(&more); err == nil && more.Content[0].Tag != "!!null" {
		return lineError(more.Line, "the file holds more than one document")
	} else if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("not YAML: %w", err)
	}
	return c.fields(root)
}

// fields takes the fields of the file's one mapping.
func (c *Cluster) fields(root *yaml.Node) error {
	lines, is := map[string]int{}, map[string]string{}
	target := reflect.ValueOf(c).Elem()
	known := map[string]int{"apiVersion": -1, "kind": -1}
	for i := range target.NumField() {
		known[target.Type().Field(i).Tag.Get("yaml")] = i
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if before := lines[key.Value]; before > 0 {
			return lineError(key.Line, "%s is set a second time, first on line %d", key.Value, before)
		}
		lines[key.Value] = key.Line
		index, ok := known[key.Value]
		switch {
		case !ok:
			return lineError(key.Line, "unknown field %q%s", key.Value, nearest.Question(key.Value, maps.Keys(known)))
		case index < 0:
			is[key.Value] = value.Value
		default:
			if err := decode(value, target.Field(index), key.Value); err != nil {
				return err
			}
		}
	}
	if is["apiVersion"] != APIVersion || is["kind"] != Kind {
		return lineError(lines["kind"], "apiVersion %q, kind %q: want %s, %s", is["apiVersion"], is["kind"], APIVersion, Kind)
	}
	if wrong := c.check(); wrong != nil {
		return lineError(lines[wrong.field], "%w", wrong)
	}
	return nil
}

// decode puts a value into a field. A null leaves the default, as an absent field does.
func decode(n *yaml.Node, into reflect.Value, field string) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" {
		return nil
	}
	want := map[reflect.Kind]string{
		reflect.Bool: "true or false", reflect.Int32: "a whole number", reflect.Float32: "a number", reflect.Float64: "a number",
		reflect.String: "text", reflect.Int64: "a duration as 1m30s", reflect.Slice: "a list of texts",
	}[into.Kind()]
	kind := yaml.Kind(yaml.ScalarNode)
	if into.Kind() == reflect.Slice {
		kind = yaml.SequenceNode
	}
	fits := n.Kind == kind && (into.Kind() != reflect.Int32 || n.ShortTag() == "!!int")
	if d, ok := into.Addr().Interface().(*time.Duration); ok && fits {
		var err error
		*d, err = time.ParseDuration(n.Value)
		fits = err == nil
	} else if fits {
		fits = n.Decode(into.Addr().Interface()) == nil
	}
	if !fits {
		return lineError(n.Line, "%s: want %s, got %.64q", field, want, n.Value)
	}
	return nil
}
