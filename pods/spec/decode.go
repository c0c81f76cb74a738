package spec

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"jettison/internal/base/nearest"
	"jettison/internal/base/strict"
)

// maxMemory bounds the bytes of all decoded values of a text. Two characters, {}, become a container
// of 900 bytes, and an alias repeats a value.
const maxMemory = 8 << 20

// decoder decodes the node of an object into a Kubernetes type and collects all errors.
type decoder struct {
	lines  map[string]int // by path, such as spec.containers[0].image or metadata.labels[app]
	errs   []*strict.FieldError
	prefix string // of paths in errors
	memory *int   // bytes of all values so far
	noNUL  bool   // text with NUL is an error: no process can be started with it
}

// line returns the line of a path or, if it is absent, of its nearest parent.
func (d *decoder) line(path string) int {
	for {
		if line, ok := d.lines[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

func (d *decoder) fail(n *yaml.Node, path string, err error) {
	d.errs = append(d.errs, &strict.FieldError{Line: n.Line, Field: join(d.prefix, path), Err: err})
}

// value decodes a node. A null counts as absent.
func (d *decoder) value(n *yaml.Node, into reflect.Value, path string) {
	n = resolve(n)
	if *d.memory += int(into.Type().Size()) + len(n.Value); *d.memory > maxMemory {
		if *d.memory < 2*maxMemory { // reported once
			*d.memory = 2 * maxMemory
			d.fail(n, "", fmt.Errorf("more than %dMi of memory when decoded: use several files",
				maxMemory>>20))
		}
		return
	}
	if n.Style&yaml.TaggedStyle != 0 && n.ShortTag() != "!!str" {
		d.fail(n, path, fmt.Errorf("tag %s not supported", clip(n.Tag)))
		return
	}
	if isNull(n) {
		return
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		d.value(n, into.Elem(), path)
		return
	}
	if decode, ok := special[into.Type()]; ok {
		if err := decode(n, into); err != nil {
			d.fail(n, path, err)
		}
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		d.structure(n, into, path)
	case reflect.Map:
		d.mapping(n, into, path)
	case reflect.Slice:
		d.list(n, into, path)
	default:
		if err := scalar(n, into); err != nil {
			d.fail(n, path, err)
		} else if d.noNUL && strings.ContainsRune(n.Value, 0) {
			d.fail(n, path, errors.New("text with a NUL character"))
		}
	}
}

func (d *decoder) structure(n *yaml.Node, into reflect.Value, path string) {
	known := layouts[into.Type()]
	d.entries(n, path, func(key, value *yaml.Node) {
		f, ok := known[key.Value]
		at := join(path, key.Value)
		switch {
		case !ok:
			d.fail(key, path, fmt.Errorf("unknown field %q%s", clip(key.Value),
				nearest.Question(key.Value, maps.Keys(known))))
		case f.verdict == supported:
			d.lines[at] = key.Line
			d.value(value, into.FieldByIndex(f.index), at)
		case f.verdict != ignored && !f.isAbsent(resolve(value)):
			d.fail(key, at, fmt.Errorf("not supported: %s", f.verdict))
		}
	})
}

func (d *decoder) mapping(n *yaml.Node, into reflect.Value, path string) {
	into.Set(reflect.MakeMap(into.Type()))
	d.entries(n, path, func(key, value *yaml.Node) {
		at := path + "[" + key.Value + "]"
		d.lines[at] = key.Line
		v := reflect.New(into.Type().Elem()).Elem()
		d.value(value, v, at)
		into.SetMapIndex(reflect.ValueOf(key.Value).Convert(into.Type().Key()), v)
	})
}

func (d *decoder) list(n *yaml.Node, into reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, path, fmt.Errorf("want a list, got %s", describe(n)))
		return
	}
	list := reflect.MakeSlice(into.Type(), 0, 0)
	for i, item := range n.Content {
		at := path + "[" + strconv.Itoa(i) + "]"
		d.lines[at] = item.Line
		v := reflect.New(into.Type().Elem()).Elem()
		d.value(item, v, at)
		if *d.memory > maxMemory {
			return
		}
		list = reflect.Append(list, v)
	}
	into.Set(list)
}

// entries calls do for each entry of a mapping with a valid, new key.
func (d *decoder) entries(n *yaml.Node, path string, do func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, fmt.Errorf("want an object, got %s", describe(n)))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content) && *d.memory <= maxMemory; i += 2 {
		key := resolve(n.Content[i])
		line, twice := seen[key.Value]
		switch tag := key.ShortTag(); {
		case tag == "!!merge":
			d.fail(key, path, errors.New("merge key not supported: write the fields"))
		case key.Kind != yaml.ScalarNode || tag != "!!str" && tag != "!!int" || isOldBool(key):
			d.fail(key, path, fmt.Errorf("key %s is not text: put it in quotes", clip(key.Value)))
		case twice:
			d.fail(key, join(path, clip(key.Value)), fmt.Errorf("is set a second time, first on line %d",
				line))
		default:
			seen[key.Value] = key.Line
			do(key, n.Content[i+1])
		}
	}
}

// resolve returns the node that an alias stands for.
func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// child returns the value of a field of a mapping; nil: it is absent.
func child(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// text returns the text of a scalar; empty: no scalar, or null.
func text(n *yaml.Node) string {
	if n = resolve(n); n == nil || n.Kind != yaml.ScalarNode || isNull(n) {
		return ""
	}
	return n.Value
}

// join returns the path of a field.
func join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// clip shortens a text of a manifest for a message.
func clip(s string) string {
	if len(s) > strict.MaxKey {
		return strings.ToValidUTF8(s[:strict.MaxKey], "") + "..."
	}
	return s
}

// clipLong shortens a message that may quote a manifest, and puts it on one line.
func clipLong(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "..."
	}
	return s
}
