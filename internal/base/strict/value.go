package strict

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// scalars describes the kinds of scalar fields.
var scalars = map[reflect.Kind]string{
	reflect.Bool: "true or false", reflect.Int32: "a whole number", reflect.Float32: "a number",
	reflect.Float64: "a number", reflect.String: "text",
}

// Value decodes a node into a field. A null keeps the default, like an absent field.
func (d *Decoder) Value(n *yaml.Node, into reflect.Value, path []string) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" {
		return nil
	}
	if d.Special != nil {
		if want, fits := d.Special(n, into); fits {
			return nil
		} else if want != "" {
			return d.mistyped(n, path, want)
		}
	}
	switch into.Kind() {
	case reflect.Map:
		return d.mapOf(n, into, path)
	case reflect.Slice:
		return d.list(n, into, path)
	case reflect.Struct:
		return d.structure(n, into, path)
	}
	return d.scalar(n, into, path)
}

// mistyped returns the error for a node that does not have the field's type.
func (d *Decoder) mistyped(n *yaml.Node, path []string, want string) error {
	err := fmt.Errorf("want %s, got %s", want, d.Describe(n))
	return &FieldError{Line: n.Line, Field: strings.Join(path, separator), Err: err}
}

func (d *Decoder) mapOf(n *yaml.Node, into reflect.Value, path []string) error {
	if n.Kind != yaml.MappingNode {
		return d.mistyped(n, path, "a mapping")
	}
	into.Set(reflect.MakeMap(into.Type()))
	return d.Mapping(n, path, func(key, value *yaml.Node) error {
		v := reflect.New(into.Type().Elem()).Elem()
		if err := d.Value(value, v, childPath(path, key.Value)); err != nil {
			return err
		}
		into.SetMapIndex(reflect.ValueOf(key.Value), v)
		return nil
	})
}

func (d *Decoder) list(n *yaml.Node, into reflect.Value, path []string) error {
	if n.Kind != yaml.SequenceNode {
		return d.mistyped(n, path, "a list")
	}
	list := reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		if err := d.Value(item, list.Index(i), childPath(path, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	into.Set(list)
	return nil
}

func (d *Decoder) structure(n *yaml.Node, into reflect.Value, path []string) error {
	if n.Kind != yaml.MappingNode {
		return d.mistyped(n, path, "a mapping")
	}
	known := Index(into.Type())
	return d.Mapping(n, path, func(key, value *yaml.Node) error {
		return d.Member(key, value, into,
			known, path)
	})
}

// scalar decodes a plain value. The library would round fractions to whole numbers and accept true
// as text. A number is accepted as text, so that a threshold needs no quotes.
func (d *Decoder) scalar(n *yaml.Node, into reflect.Value, path []string) error {
	fits := n.Kind == yaml.ScalarNode && (into.Kind() != reflect.Int32 || n.ShortTag() == "!!int") &&
		(into.Kind() != reflect.String || d.BoolAsText || n.ShortTag() != "!!bool")
	if !fits || n.Decode(into.Addr().Interface()) != nil {
		return d.mistyped(n, path, scalars[into.Kind()])
	}
	return nil
}
