package strict

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of the nodes that a Checker reads: aliases can make a small file large.
const (
	maxNodes = 100_000
	maxDepth = 100
)

// Checker compares YAML with a type that is later decoded from JSON, and collects all errors. A
// null counts as absent.
type Checker struct {
	Lines  Lines         // of all values, with the separator "."
	Errors []*FieldError // each has a line

	// Special checks a node whose type has a special notation, and reports whether it does; nil: no
	// such types.
	Special func(n *yaml.Node, t reflect.Type, path []string) bool
	// Known returns the fields of a struct by name; nil: Fields.
	Known func(t reflect.Type) map[string]reflect.Type
	// Member checks a field of the struct n that Known does not return, and reports whether it
	// knows the field; nil: it is unknown.
	Member func(n, key, value *yaml.Node, t reflect.Type, path []string) bool

	nodes    int
	tooLarge bool // reported
}

// Add adds an error about a node.
func (c *Checker) Add(n *yaml.Node, path []string, format string, args ...any) {
	err := fmt.Errorf(format, args...)
	c.Errors = append(c.Errors, &FieldError{Line: n.Line, Field: strings.Join(path, "."), Err: err})
}

var (
	jsonType = reflect.TypeFor[json.Unmarshaler]()
	textType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// Check compares a node with a type and adds all errors.
func (c *Checker) Check(n *yaml.Node, t reflect.Type, path []string) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if c.nodes++; c.nodes > maxNodes || len(path) > maxDepth {
		if !c.tooLarge {
			c.tooLarge = true
			c.Add(n, nil, "too many or too deeply nested values: at most %d, %d deep", maxNodes, maxDepth)
		}
		return
	}
	c.Lines[strings.Join(path, ".")] = n.Line
	t = elemType(t)
	if n.Tag == "!!null" || c.Special != nil && c.Special(n, t, path) {
		return
	}
	switch {
	case reflect.PointerTo(t).Implements(jsonType) || reflect.PointerTo(t).Implements(textType):
	case t.Kind() == reflect.Struct:
		c.structure(n, t, path)
	case t.Kind() == reflect.Map:
		c.mapping(n, path, func(_, value *yaml.Node, path []string) { c.Check(value, t.Elem(), path) })
	case t.Kind() == reflect.Slice:
		c.list(n, t.Elem(), path)
	default:
		c.scalar(n, t.Kind(), path)
	}
}

func (c *Checker) list(n *yaml.Node, elem reflect.Type, path []string) {
	if n.Kind != yaml.SequenceNode {
		c.Add(n, path, "want a list")
		return
	}
	for i, item := range n.Content {
		c.Check(item, elem, childPath(path, strconv.Itoa(i)))
	}
}

func (c *Checker) structure(n *yaml.Node, t reflect.Type, path []string) {
	known := Fields
	if c.Known != nil {
		known = c.Known
	}
	fields := known(t)
	c.mapping(n, path, func(key, value *yaml.Node, path []string) {
		if field, ok := fields[key.Value]; ok {
			c.Check(value, field, path)
		} else if c.Member == nil || !c.Member(n, key, value, t, path) {
			c.Add(key, path[:len(path)-1], "%w", unknownField(key.Value, fields))
		}
	})
}

// mapping calls do for each entry. It rejects merge keys.
func (c *Checker) mapping(n *yaml.Node, path []string, do func(key, value *yaml.Node,
	path []string)) {
	if n.Kind != yaml.MappingNode {
		c.Add(n, path, "want a mapping")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Tag == "!!merge":
			c.Add(key, path, "merge keys not supported: write the fields")
			continue
		case key.Kind != yaml.ScalarNode:
			c.Add(key, path, "want a name as key")
			continue
		case seen[key.Value]:
			c.Add(key, path, "duplicate field %q", key.Value)
			continue
		}
		seen[key.Value] = true
		at := childPath(path, key.Value)
		c.Lines[strings.Join(at, ".")] = key.Line
		do(key, value, at)
	}
}

// words maps words for true and false of YAML 1.1, the version of the descheduler's policies.
var words = map[string]string{"yes": "true", "on": "true", "y": "true", "no": "false",
	"off": "false", "n": "false"}

// scalar checks a plain value. It replaces a truth value of YAML 1.1 by that of YAML 1.2.
func (c *Checker) scalar(n *yaml.Node, kind reflect.Kind, path []string) {
	ok, want := false, ""
	switch kind {
	case reflect.Bool:
		if word, old := words[strings.ToLower(n.Value)]; old && n.Style == 0 {
			n.Tag, n.Value = "!!bool", word
		}
		ok, want = n.Tag == "!!bool", "true or false"
	case reflect.Uint:
		_, err := strconv.ParseUint(n.Value, 0, 63)
		ok, want = n.Tag == "!!int" && err == nil, "a whole number, 0 or more"
	case reflect.Int, reflect.Int64:
		_, err := strconv.ParseInt(n.Value, 0, 64)
		ok, want = n.Tag == "!!int" && err == nil, "a whole number"
	case reflect.Int32:
		_, err := strconv.ParseInt(n.Value, 0, 32)
		ok, want = n.Tag == "!!int" && err == nil, "a whole number of at most 32 bits"
	case reflect.Float64:
		_, err := strconv.ParseFloat(n.Value, 64)
		ok, want = err == nil && (n.Tag == "!!int" || n.Tag == "!!float"), "a number"
	case reflect.String:
		ok, want = n.Tag == "!!str", "text: put it in quotes if it looks like another type"
	}
	if !ok || n.Kind != yaml.ScalarNode {
		c.Add(n, path, "%q: want %s", n.Value, want)
	}
}
