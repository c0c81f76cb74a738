package strict

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"jettison/internal/base/nearest"
)

// separator stands between the names of a Decoder's paths.
const separator = ": "

// Decoder decodes a YAML mapping into a struct whose fields have yaml tags. Its errors are
// *FieldErrors with a line.
type Decoder struct {
	Lines Lines // of the keys that it has seen, with the separator ": "
	// merge keys, and keys that are no scalar, are refused as such, not as unknown fields
	PlainKeys bool

	// Describe returns what a node of another type than wanted is called.
	Describe func(*yaml.Node) string
	// Special decodes types that the Decoder does not know or that the file writes in its own way.
	// It returns what the type takes in words, and whether the node fits; an empty want leaves the
	// node to the Decoder. nil: there are no such types.
	Special func(n *yaml.Node, into reflect.Value) (want string, fits bool)
	// TextOfBool: a text takes true and false, too.
	TextOfBool bool
	// Twice is called for a key that comes again. nil, or an error that it returns, ends the decoding.
	Twice func(field string, line, before int) error
	// PassOver reports whether an unknown field is no error. nil: it is one.
	PassOver func(path []string) bool
}

// Index returns the fields of a struct by their yaml names, but those that are not written ("-").
func Index(t reflect.Type) map[string]int {
	known := map[string]int{}
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "-" {
			known[name] = i
		}
	}
	return known
}

// Mapping visits the pairs of a mapping and notes the lines of its keys.
func (d *Decoder) Mapping(n *yaml.Node, path []string,
	visit func(key, value *yaml.Node) error) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if d.PlainKeys && (key.Kind != yaml.ScalarNode || key.Tag == "!!merge") {
			return &FieldError{Line: key.Line, Err: errors.New("want a plain field name")}
		}
		field := strings.Join(below(path, key.Value), separator)
		if before, twice := d.Lines[field]; twice {
			if err := d.twice(field, key.Line, before); err != nil {
				return err
			}
		}
		d.Lines[field] = key.Line
		if err := visit(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (d *Decoder) twice(field string, line, before int) error {
	if d.Twice != nil {
		return d.Twice(field, line, before)
	}
	return SetTwice(field, line, before)
}

// SetTwice returns the error of a field that is set a second time.
func SetTwice(field string, line, before int) *FieldError {
	return &FieldError{Line: line, Err: fmt.Errorf("%s is set a second time, first on line %d", field,
		before)}
}

// Member decodes one pair of a mapping into the field of a struct that known has for its key.
func (d *Decoder) Member(key, value *yaml.Node, into reflect.Value, known map[string]int,
	path []string) error {
	at := below(path, key.Value)
	index, ok := known[key.Value]
	switch {
	case ok:
		return d.Value(value, into.Field(index), at)
	case d.PassOver != nil && d.PassOver(at):
		return nil
	}
	return &FieldError{Line: key.Line, Field: strings.Join(path, separator),
		Err: unknownField(key.Value, known)}
}

// unknownField returns the error of a name that is not among the known ones.
func unknownField[V any](name string, known map[string]V) error {
	return fmt.Errorf("unknown field %q%s", name, nearest.Question(name, maps.Keys(known)))
}

// below returns the path of a name below another.
func below(path []string, name string) []string { return append(slices.Clone(path), name) }
