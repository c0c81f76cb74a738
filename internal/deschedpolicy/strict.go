package deschedpolicy

import (
	"encoding"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cluster/deschedule"
	"jettison/internal/nearest"
)

// Bounds of what is read: aliases can make a small file large.
const (
	mostNodes = 100_000
	mostDepth = 100
)

// strict checks YAML against a type before it is decoded, and remembers where everything is.
type strict struct {
	name   string
	lines  map[string]int
	faults []error
	nodes  int
	deep   bool
}

func (s *strict) fault(line int, format string, args ...any) error {
	return fmt.Errorf("policy %s:%d: "+format, append([]any{s.name, max(line, 1)}, args...)...)
}

func (s *strict) add(n *yaml.Node, path []string, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(path) > 0 {
		text = strings.Join(path, ".") + ": " + text
	}
	s.faults = append(s.faults, s.fault(n.Line, "%s", text))
}

// line of a path, or of the nearest above it that is there.
func (s *strict) line(path []string) int {
	for ; len(path) > 0; path = path[:len(path)-1] {
		if line, ok := s.lines[strings.Join(path, ".")]; ok {
			return line
		}
	}
	return 1
}

// fieldsOf are the fields of a struct by their names in JSON, those of embedded ones included.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "":
			maps.Copy(out, fieldsOf(f.Type))
		case name != "":
			out[name] = f.Type
		}
	}
	return out
}

var (
	durationType = reflect.TypeFor[metav1.Duration]()
	configType   = reflect.TypeFor[deschedule.PluginConfig]()
	pluginsType  = reflect.TypeFor[deschedule.Plugins]()
	jsonType     = reflect.TypeFor[json.Unmarshaler]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// check compares a node with a type. What is null is not set.
func (s *strict) check(n *yaml.Node, t reflect.Type, path []string) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if s.nodes++; s.nodes > mostNodes || len(path) > mostDepth {
		if !s.deep {
			s.deep = true
			s.add(n, nil, "there is too much of it: at most %d values, %d deep", mostNodes, mostDepth)
		}
		return
	}
	s.lines[strings.Join(path, ".")] = n.Line
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Tag == "!!null" {
		return
	}
	switch {
	case t == durationType:
		s.duration(n, path)
	case reflect.PointerTo(t).Implements(jsonType) || reflect.PointerTo(t).Implements(textType):
	case t.Kind() == reflect.Struct:
		s.structure(n, t, path)
	case t.Kind() == reflect.Map:
		s.mapping(n, path, func(key, value *yaml.Node, path []string) { s.check(value, t.Elem(), path) })
	case t.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			s.add(n, path, "want a list")
			return
		}
		for i, item := range n.Content {
			s.check(item, t.Elem(), append(slices.Clone(path), strconv.Itoa(i)))
		}
	default:
		s.scalar(n, t.Kind(), path)
	}
}

func (s *strict) structure(n *yaml.Node, t reflect.Type, path []string) {
	fields := fieldsOf(t)
	if t == configType {
		delete(fields, "args")
	}
	s.mapping(n, path, func(key, value *yaml.Node, path []string) {
		field, ok := fields[key.Value]
		if t == pluginsType && key.Value == "preEvictionFilter" { // as the descheduler's own README spells it
			field, ok = fields["preevictionfilter"]
		}
		if ok {
			s.check(value, field, path)
			return
		}
		if t == configType && key.Value == "args" {
			s.args(n, value, path)
			return
		}
		s.add(key, path[:len(path)-1], "unknown field %q%s", key.Value, question(key.Value, maps.Keys(fields)))
	})
}

// question prefers a name that is the same but for capitals.
func question(name string, known iter.Seq[string]) string {
	for candidate := range known {
		if strings.EqualFold(candidate, name) {
			return fmt.Sprintf(": did you mean %q?", candidate)
		}
	}
	return nearest.Question(name, known)
}

// args are of the plugin that the entry names.
func (s *strict) args(entry, value *yaml.Node, path []string) {
	name, _ := scalar(entry, "name")
	if args := deschedule.NewArgs(name); args != nil {
		s.check(value, reflect.TypeOf(args), path)
	} else if name == "" {
		s.add(entry, path[:len(path)-1], "name is missing: the plugin that these args are of")
	} else {
		s.add(entry, path[:len(path)-1], "there is no plugin %q%s", name, question(name, slices.Values(deschedule.Names())))
	}
}

// mapping calls do for each entry, those of merged mappings included.
func (s *strict) mapping(n *yaml.Node, path []string, do func(key, value *yaml.Node, path []string)) {
	if n.Kind != yaml.MappingNode {
		s.add(n, path, "want fields")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			s.add(key, path, "merge keys are not read: write the fields")
			continue
		}
		if key.Kind != yaml.ScalarNode {
			s.add(key, path, "want a name as key")
			continue
		}
		if seen[key.Value] {
			s.add(key, path, "field %q is there twice", key.Value)
			continue
		}
		seen[key.Value] = true
		at := append(slices.Clone(path), key.Value)
		s.lines[strings.Join(at, ".")] = key.Line
		do(key, value, at)
	}
}

func (s *strict) duration(n *yaml.Node, path []string) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		if _, err := time.ParseDuration(n.Value); err == nil {
			return
		}
	}
	s.add(n, path, "%q: want a duration, as in \"10m\"", n.Value)
}

// words that YAML 1.1, by which 0.36.0 reads, has for true and false.
var words = map[string]string{"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}

func (s *strict) scalar(n *yaml.Node, kind reflect.Kind, path []string) {
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
		ok, want = n.Tag == "!!str", "a text: put it in quotes if it looks like something else"
	}
	if !ok || n.Kind != yaml.ScalarNode {
		s.add(n, path, "%q: want %s", n.Value, want)
	}
}
