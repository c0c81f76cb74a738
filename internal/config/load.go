package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"jettison/eviction"
	"jettison/internal/nearest"
	"jettison/internal/wholefile"
)

// maxSize of a configuration file. A kubelet's has a few KiB.
const maxSize = 1 << 20

// pipeLimit is how long a configuration that comes through a pipe may take, as one that a shell has another program write.
const pipeLimit = 30 * time.Second

var errPipe = fmt.Errorf("it is a pipe that nobody wrote and closed within %v: name a file", pipeLimit)

// Loaded is a configuration with where it came from and what a person should know about it.
type Loaded struct {
	*Config
	Path     string   // empty: no file, the defaults
	From     string   // where all of it came from, for people: the file, drop-ins, the kubelet
	Kind     string   // KindAgent or KindKubelet
	Warnings []string // one line each

	// Kubelet: what the node's kubelet goes by is part of it, as it was found.
	Kubelet bool
	// EndpointFrom says why containerRuntimeEndpoint is what it is, for people; empty where nobody has looked for the runtime.
	EndpointFrom string
	// Files and folders that it was read from, as this process sees them.
	Files []string

	lines *parser           // knows where fields are; nil without a file
	told  map[string]Origin // of fields that no file sets
	unset bool              // containerRuntimeEndpoint is set to nothing
	usual []Socket          // where a runtime is looked for that nobody names
}

// AwaitsKubelet: it would have been made of what a kubelet goes by, had one been there whose configuration can be taken.
func (l *Loaded) AwaitsKubelet() bool { return l.Kind == KindAgent && !l.Kubelet }

// Blame says where the file sets a field that turned out to be wrong only later: the file, the line, the field, what is wrong.
// Without a file it names the field alone.
func (l *Loaded) Blame(e *eviction.FieldError) error {
	if l.lines == nil {
		return fmt.Errorf("config: %s", e.Line())
	}
	return fmt.Errorf("config %s: %s", place(l.lines.names, l.lines.line(e.Field)), e.Line())
}

// Load reads the file at path. With an empty path it reads DefaultPath and, where that is missing, returns the defaults. It waits for a
// pipe's writer, until ctx ends or for 30 s.
// Errors are one line: the file, the line, the field, what is wrong.
func Load(ctx context.Context, path string) (*Loaded, error) {
	p, err := readParts(ctx, path)
	if p == nil && err == nil {
		return &Loaded{Config: Default(), Kind: KindAgent, From: FromDefaults}, nil
	}
	if err != nil {
		return nil, err
	}
	return p.named()
}

// Check reads the file at path as the agent's own configuration, and nothing else of the node; "-" is standard input.
func Check(ctx context.Context, path string, stdin *os.File) (*Loaded, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pipeLimit, errPipe)
	defer cancel()
	var p *parts
	var err error
	if path == "-" {
		p, err = partsOf(wholefile.NewStream(ctx, stdin), "stdin")
	} else {
		p, err = readParts(ctx, path)
	}
	if err == nil {
		err = p.trusted()
	}
	if err != nil {
		return nil, err
	}
	return p.named()
}

// readParts reads the file at path, or DefaultPath; nil: there is none, and none is named.
func readParts(ctx context.Context, path string) (*parts, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pipeLimit, errPipe)
	defer cancel()
	named := path != ""
	if !named {
		path = DefaultPath
	}
	f, err := wholefile.OpenStream(ctx, path)
	if errors.Is(err, os.ErrNotExist) && !named {
		return nil, nil
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("config: %w: name a file that is there (the two lines \"apiVersion: %s\" and \"kind: %s\" make one), "+
			"or none: without --config it is %s if that is there, else the defaults hold", err, APIVersionAgent, KindAgent, DefaultPath)
	}
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer func() { _ = f.Close() }()
	p, err := partsOf(f, path)
	if err == nil {
		p.opened = path
	}
	return p, err
}

// partsOf reads an open file.
func partsOf(f *wholefile.Stream, path string) (*parts, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("config: %s is larger than %d bytes: name the configuration's own file", path, maxSize)
	}
	p := &parts{names: []string{path}, info: info}
	if full, err := filepath.Abs(path); err == nil {
		p.dir, p.files = filepath.Dir(full), []string{full}
	}
	if p.root, err = document(text); err != nil {
		return nil, p.blame(err)
	}
	return p, nil
}

// named is load for parts that come from a file, whose path is in errors.
func (p *parts) named() (*Loaded, error) {
	l, err := p.load()
	if err != nil {
		return nil, p.blame(err)
	}
	l.Path, l.From = p.names[0], p.names[0]
	if len(p.dropins) > 0 {
		l.From += fmt.Sprintf(", with %d drop-ins", len(p.dropins))
	}
	return l, nil
}

// lineError is "LINE: what".
func lineError(line int, format string, args ...any) error {
	return fmt.Errorf("%d: "+format, append([]any{max(line, 1)}, args...)...)
}

// load makes a configuration of its parts.
func (s *parts) load() (*Loaded, error) {
	p := &parser{lines: map[string]int{}, names: s.names, layer: s.layer}
	if s.flagged != nil {
		p.flags = s.flagged.flagOf
	}
	kind, err := p.kind(s.root)
	if err != nil {
		return nil, err
	}
	p.lenient = kind == KindKubelet
	loaded := &Loaded{Config: defaults(kind), Kind: kind, lines: p}
	if err := p.fields(s.merged(kind), loaded); err != nil {
		return nil, err
	}
	if s.finish != nil {
		s.finish(loaded.Config)
	}
	loaded.Files = s.files
	if s.own != nil {
		kind = kindBoth
		if err := s.layOver(p, loaded); err != nil {
			return nil, err
		}
	}
	loaded.unset = loaded.ContainerRuntimeEndpoint == ""
	doubts, err := loaded.complete(kind)
	if err != nil {
		var f *fieldError
		if errors.As(err, &f) {
			return nil, lineError(p.line(f.field), "%s: %w", strings.Join(f.field, ": "), err)
		}
		return nil, err
	}
	if len(p.ignored) > 0 {
		loaded.Warnings = append(loaded.Warnings, "ignored fields of the kubelet: "+strings.Join(p.ignored, ", "))
	}
	loaded.Warnings = append(append(loaded.Warnings, p.odd...), doubts...)
	return loaded, nil
}

// document finds the one mapping that a file holds.
func document(text []byte) (*yaml.Node, error) {
	var doc yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&doc); err == io.EOF {
		return nil, lineError(1, "the file is empty: want apiVersion: %s, kind: %s", APIVersionAgent, KindAgent)
	} else if err != nil {
		return nil, syntaxError(err)
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, lineError(root.Line, "want fields, as in \"kind: %s\"", KindAgent)
	}
	for {
		var more yaml.Node
		if err := d.Decode(&more); err == io.EOF {
			return root, nil
		} else if err != nil {
			return nil, syntaxError(err)
		}
		if more.Content[0].Tag != "!!null" { // a trailing --- is no document
			return nil, lineError(more.Line, "the file holds more than one document")
		}
	}
}

// syntaxError puts yaml's "yaml: line 3: what" into this package's form.
func syntaxError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, what, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(number); err == nil {
				// The library counts a parser's lines from 0 and a scanner's from 1 (yaml/v3 decode.go, parser.fail).
				if strings.HasPrefix(what, "did not find expected") {
					line++
				}
				return lineError(line, "not YAML: %s", what)
			}
		}
	}
	return lineError(1, "not YAML: %s", text)
}

type parser struct {
	lines   map[string]int // path of keys joined by ": " to its line
	names   []string       // of the files that lines are of
	layer   func(file int) Source
	flags   map[string]string // of a kubelet, by the field that they set
	lenient bool              // a kubelet's file: what a kubelet accepts is a warning
	ignored []string          // fields that this program does not know, in a kubelet's file
	odd     []string          // what a kubelet accepts and should not
}

// line is that of the longest part of a path that the file has.
func (p *parser) line(path []string) int {
	for ; len(path) > 0; path = path[:len(path)-1] {
		if line := p.lines[strings.Join(path, ": ")]; line > 0 {
			return line
		}
	}
	return 1
}

// kind finds apiVersion and kind, which say how to read everything else.
func (p *parser) kind(root *yaml.Node) (string, error) {
	var apiVersion, kind string
	line := root.Line
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch root.Content[i].Value {
		case "apiVersion":
			apiVersion = root.Content[i+1].Value
		case "kind":
			kind, line = root.Content[i+1].Value, root.Content[i].Line
		}
	}
	for _, known := range [][2]string{{APIVersionAgent, KindAgent}, {APIVersionKubelet, KindKubelet}} {
		if apiVersion == known[0] && kind == known[1] {
			return kind, nil
		}
	}
	return "", lineError(line, "apiVersion %q, kind %q: want %s, %s or a kubelet's %s, %s",
		apiVersion, kind, APIVersionAgent, KindAgent, APIVersionKubelet, KindKubelet)
}

// fields decodes the root mapping, key by key, into the Config.
func (p *parser) fields(root *yaml.Node, loaded *Loaded) error {
	target := reflect.ValueOf(loaded.Config).Elem()
	known := knownFields(target.Type(), loaded.Kind == KindKubelet)
	return p.mapping(root, nil, func(key, value *yaml.Node) error {
		if key.Value == "apiVersion" || key.Value == "kind" {
			return nil
		}
		index, ok := known[key.Value]
		if !ok {
			if loaded.Kind == KindKubelet {
				p.ignored = append(p.ignored, key.Value)
				return nil
			}
			return lineError(key.Line, "%s", unknown(key.Value, known))
		}
		return p.decode(value, target.Field(index), []string{key.Value})
	})
}

// knownFields are the yaml names of a struct's fields. A kubelet's file cannot set what the kubelet does not have.
func knownFields(t reflect.Type, kubelet bool) map[string]int {
	known := map[string]int{}
	for i := range t.NumField() {
		f := t.Field(i)
		if name := f.Tag.Get("yaml"); name != "-" && (!kubelet || f.Tag.Get("own") == "") {
			known[name] = i
		}
	}
	return known
}

func unknown(name string, known map[string]int) string {
	return fmt.Sprintf("unknown field %q", name) + nearest.Question(name, maps.Keys(known))
}

// mapping visits the pairs of a mapping; a key that comes twice is an error.
func (p *parser) mapping(n *yaml.Node, path []string, visit func(key, value *yaml.Node) error) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := strings.Join(append(slices.Clone(path), key.Value), ": ")
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			return lineError(key.Line, "want a plain field name")
		}
		if before, twice := p.lines[name]; twice {
			if !p.lenient {
				return lineError(key.Line, "%s is set a second time, first on line %d", name, before)
			}
			p.odd = append(p.odd, fmt.Sprintf("line %d: %s is set a second time, first on line %d: the last one counts",
				key.Line&(1<<lineBits-1), name, before&(1<<lineBits-1)))
		}
		p.lines[name] = key.Line
		if err := visit(key, value); err != nil {
			return err
		}
	}
	return nil
}

// decode puts a node into a field. A null leaves the default, as an absent field does.
func (p *parser) decode(n *yaml.Node, into reflect.Value, path []string) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" {
		return nil
	}
	switch v := into.Addr().Interface().(type) {
	case *Duration:
		d, err := time.ParseDuration(n.Value)
		if err != nil || n.Kind != yaml.ScalarNode {
			return mistyped(n, path, `a duration as "1m30s"`)
		}
		*v = Duration(d)
		return nil
	case *map[string]string:
		return p.decodeTexts(n, v, path)
	case *[]string, *[]Taint:
		return p.decodeList(n, into, path)
	}
	if into.Kind() == reflect.Struct {
		return p.decodeStruct(n, into, path)
	}
	return decodeScalar(n, into, path)
}

// mistyped says that a node is not of a field's type.
func mistyped(n *yaml.Node, path []string, want string) error {
	return lineError(n.Line, "%s: want %s, got %s", strings.Join(path, ": "), want, describe(n))
}

func (p *parser) decodeTexts(n *yaml.Node, into *map[string]string, path []string) error {
	if n.Kind != yaml.MappingNode {
		return mistyped(n, path, "a mapping")
	}
	*into = map[string]string{}
	return p.mapping(n, path, func(key, value *yaml.Node) error {
		var text string
		if err := p.decode(value, reflect.ValueOf(&text).Elem(), append(slices.Clone(path), key.Value)); err != nil {
			return err
		}
		(*into)[key.Value] = text
		return nil
	})
}

func (p *parser) decodeList(n *yaml.Node, into reflect.Value, path []string) error {
	if n.Kind != yaml.SequenceNode {
		return mistyped(n, path, "a list")
	}
	list := reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		if err := p.decode(item, list.Index(i), append(slices.Clone(path), strconv.Itoa(i))); err != nil {
			return err
		}
	}
	into.Set(list)
	return nil
}

func (p *parser) decodeStruct(n *yaml.Node, into reflect.Value, path []string) error {
	if n.Kind != yaml.MappingNode {
		return mistyped(n, path, "a mapping")
	}
	known := knownFields(into.Type(), false)
	return p.mapping(n, path, func(key, value *yaml.Node) error {
		index, ok := known[key.Value]
		if !ok && p.lenient {
			p.ignored = append(p.ignored, strings.Join(append(slices.Clone(path), key.Value), ": "))
			return nil
		}
		if !ok {
			return lineError(key.Line, "%s: %s", strings.Join(path, ": "), unknown(key.Value, known))
		}
		return p.decode(value, into.Field(index), append(slices.Clone(path), key.Value))
	})
}

// scalars are what people call a field's kind.
var scalars = map[reflect.Kind]string{
	reflect.Bool: "true or false", reflect.Int32: "a whole number", reflect.Float64: "a number", reflect.String: "text",
}

func decodeScalar(n *yaml.Node, into reflect.Value, path []string) error {
	// The library rounds fractions to whole numbers and writes truths as text. A number for text is taken: a threshold needs no quotes.
	fits := n.Kind == yaml.ScalarNode && (into.Kind() != reflect.Int32 || n.ShortTag() == "!!int") &&
		(into.Kind() != reflect.String || n.ShortTag() != "!!bool")
	if !fits || n.Decode(into.Addr().Interface()) != nil {
		return mistyped(n, path, scalars[into.Kind()])
	}
	return nil
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return strconv.Quote(n.Value)
}
