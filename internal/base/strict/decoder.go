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

// separator joins the names of a Decoder's paths.
const separator = ": "

// Decoder decodes a YAML mapping into a struct with yaml tags. Its errors are *FieldErrors with a
// line.
type Decoder struct {
	Lines Lines // of the decoded keys, with the separator ": "
	// merge keys and non-scalar keys are rejected as such, not as unknown fields
	PlainKeys bool

	// Describe describes a node of a wrong type.
	Describe func(*yaml.Node) string
	// Special decodes a type that the Decoder does not know, or that has a special notation. It
	// returns a description of the type's values, and whether the node is one; an empty want leaves
	// the node to the Decoder. nil: no such types.
	Special func(n *yaml.Node, into reflect.Value) (want string, fits bool)
	// BoolAsText: text fields accept true and false.
	BoolAsText bool
	// OnDuplicate is called for a duplicate key. nil, or an error that it returns, ends the
	// decoding.
	OnDuplicate func(field string, line, before int) error
	// IgnoreUnknown reports whether an unknown field is ignored; nil: it is an error.
	IgnoreUnknown func(key *yaml.Node, path []string) bool
	// Hint returns the end of the error about an unknown field, such as `: did you mean "x"?`. If it
	// is nil or returns an empty text, the error names a similar field.
	Hint func(path []string) string
}

// Index returns the fields of a struct by their yaml names, without those named "-".
func Index(t reflect.Type) map[string]int {
	known := map[string]int{}
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("yaml"); name != "-" {
			known[name] = i
		}
	}
	return known
}

// Mapping visits the pairs of a mapping and records the lines of its keys.
func (d *Decoder) Mapping(n *yaml.Node, path []string,
	visit func(key, value *yaml.Node) error) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if d.PlainKeys && (key.Kind != yaml.ScalarNode || key.Tag == "!!merge") {
			return &FieldError{Line: key.Line, Err: errors.New("want a plain field name")}
		}
		field := strings.Join(childPath(path, key.Value), separator)
		if before, twice := d.Lines[field]; twice {
			if err := d.duplicate(field, key.Line, before); err != nil {
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

func (d *Decoder) duplicate(field string, line, before int) error {
	if d.OnDuplicate != nil {
		return d.OnDuplicate(field, line, before)
	}
	return DuplicateError(field, line, before)
}

// DuplicateError returns the error for a duplicate field.
func DuplicateError(field string, line, before int) *FieldError {
	return &FieldError{Line: line, Err: fmt.Errorf("%s is set a second time, first on line %d", field,
		before)}
}

// Member decodes one pair of a mapping into the struct's field with the index in known.
func (d *Decoder) Member(key, value *yaml.Node, into reflect.Value, known map[string]int,
	path []string) error {
	at := childPath(path, key.Value)
	index, ok := known[key.Value]
	switch {
	case ok:
		return d.Value(value, into.Field(index), at)
	case d.IgnoreUnknown != nil && d.IgnoreUnknown(key, at):
		return nil
	}
	err := unknownField(key.Value, known)
	if d.Hint != nil {
		if hint := d.Hint(at); hint != "" {
			err = fmt.Errorf("unknown field %q%s", key.Value, hint)
		}
	}
	return &FieldError{Line: key.Line, Field: strings.Join(path, separator), Err: err}
}

// unknownField returns the error for a name that is not in known.
func unknownField[V any](name string, known map[string]V) error {
	return fmt.Errorf("unknown field %q%s", name, nearest.Question(name, maps.Keys(known)))
}

// childPath returns path with name appended.
func childPath(path []string, name string) []string { return append(slices.Clone(path), name) }
