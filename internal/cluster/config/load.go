package config

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"time"

	"go.yaml.in/yaml/v3"

	"jettison/internal/base/atomicfile"
	"jettison/internal/base/strict"
)

// maxSize limits the size of a file, in bytes.
const maxSize = 1 << 20

// Load reads the file at path over the defaults; an empty path returns the defaults. Errors are one
// line with the file, the line, the field and the fault.
func Load(ctx context.Context, path string) (*Cluster, error) {
	c := Default()
	if path == "" {
		return c, nil
	}
	f, err := atomicfile.OpenStream(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("config: %s is larger than %d bytes: is it the configuration file?",
			path, maxSize)
	}
	if c, err = Parse(text); err != nil {
		return nil, fmt.Errorf("config %s: %w", path, err)
	}
	return c, nil
}

// Parse reads the text of a file over the defaults.
func Parse(text []byte) (*Cluster, error) {
	c := Default()
	return c, c.read(text)
}

// read applies the text of a file.
func (c *Cluster) read(text []byte) error {
	file := strict.Document{APIVersion: APIVersion, Kind: Kind, SecondOnly: true}
	root, err := file.Root(text)
	if err != nil {
		return err
	}
	return c.fields(root)
}

// fields applies the fields of the file's mapping.
func (c *Cluster) fields(root *yaml.Node) error {
	d := &strict.Decoder{Lines: strict.Lines{}, Describe: describe, Special: decodeSpecial, BoolAsText: true}
	header := map[string]string{}
	target := reflect.ValueOf(c).Elem()
	known := strict.Index(target.Type())
	known["apiVersion"], known["kind"] = -1, -1
	err := d.Mapping(root, nil, func(key, value *yaml.Node) error {
		if index, ok := known[key.Value]; ok && index < 0 {
			header[key.Value] = value.Value
			return nil
		}
		if key.Value == "mode" && value.Tag != "!!null" {
			c.ModeSet = true
		}
		return d.Member(key, value, target, known, nil)
	})
	if err != nil {
		return err
	}
	if header["apiVersion"] != APIVersion || header["kind"] != Kind {
		return &strict.FieldError{Line: max(d.Lines["kind"], 1),
			Err: fmt.Errorf("apiVersion %q, kind %q: want %s, %s", header["apiVersion"], header["kind"], APIVersion,
				Kind)}
	}
	if fault := c.check(); fault != nil {
		fault.Line = max(d.Lines[fault.Field], 1)
		return fault
	}
	return nil
}

// describe formats a value for an error.
func describe(n *yaml.Node) string { return fmt.Sprintf("%.64q", n.Value) }

// decodeSpecial decodes durations in Go's format, and lists of strings.
func decodeSpecial(n *yaml.Node, into reflect.Value) (want string, fits bool) {
	switch v := into.Addr().Interface().(type) {
	case *time.Duration:
		parsed, err := time.ParseDuration(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil {
			return "a duration such as 1m30s", false
		}
		*v = parsed
		return "", true
	case *[]string:
		return "a list of strings", n.Kind == yaml.SequenceNode && n.Decode(v) == nil
	}
	return "", false
}
