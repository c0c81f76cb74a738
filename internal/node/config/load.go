package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"jettison/eviction"
	"jettison/internal/base/atomicfile"
	"jettison/internal/base/strict"
)

// maxSize of a configuration file. A kubelet's has a few KiB.
const maxSize = 1 << 20

// pipeLimit is how long a configuration that comes through a pipe may take, as one that a shell has
// another program write.
const pipeLimit = 30 * time.Second

var errPipe = fmt.Errorf("it is a pipe that nobody wrote and closed within %v: name a file",
	pipeLimit)

// Loaded is a configuration with where it came from and what a person should know about it.
type Loaded struct {
	*Config
	Path     string   // empty: no file, the defaults
	From     string   // where all of it came from, for people: the file, drop-ins, the kubelet
	Kind     string   // KindAgent or KindKubelet
	Warnings []string // one line each

	// Kubelet: what the node's kubelet goes by is part of it, as it was found.
	Kubelet bool
	// EndpointFrom says why containerRuntimeEndpoint is what it is, for people; empty where nobody has
	// looked for the runtime.
	EndpointFrom string
	// Files and folders that it was read from, as this process sees them.
	Files []string

	lines *parser           // knows where fields are; nil without a file
	told  map[string]Origin // of fields that no file sets
	unset bool              // containerRuntimeEndpoint is set to nothing
	usual []Socket          // where a runtime is looked for that nobody names
}

// AwaitsKubelet: it would have been made of what a kubelet goes by, had one been there whose
// configuration can be taken.
func (l *Loaded) AwaitsKubelet() bool { return l.Kind == KindAgent && !l.Kubelet }

// Blame says where the file sets a field that turned out to be wrong only later: the file, the
// line, the field, what is wrong. Without a file it names the field alone.
func (l *Loaded) Blame(e *eviction.FieldError) error {
	if l.lines == nil {
		return fmt.Errorf("config: %s", e.Line())
	}
	return fmt.Errorf("config %s: %s", place(l.lines.names, l.lines.line(e.Field)), e.Line())
}

// Load reads the file at path. With an empty path it reads DefaultPath and, where that is missing,
// returns the defaults. It waits for a pipe's writer, until ctx ends or for 30 s. Errors are one
// line: the file, the line, the field, what is wrong.
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

// Check reads the file at path as the agent's own configuration, and nothing else of the node; "-"
// is standard input.
func Check(ctx context.Context, path string, stdin *os.File) (*Loaded, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pipeLimit, errPipe)
	defer cancel()
	var p *parts
	var err error
	if path == "-" {
		p, err = partsOf(atomicfile.NewStream(ctx, stdin), "stdin")
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
	f, err := atomicfile.OpenStream(ctx, path)
	if errors.Is(err, os.ErrNotExist) && !named {
		return nil, nil
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("config: %w: name a file that is there (the two lines \"apiVersion: "+
			"%s\" and \"kind: %s\" make one), "+
			"or none: without --config it is %s if that is there, else the defaults hold", err,
			APIVersionAgent, KindAgent, DefaultPath)
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
func partsOf(f *atomicfile.Stream, path string) (*parts, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("config: %s is larger than %d bytes: name the configuration's own file",
			path, maxSize)
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
	p := &parser{lines: strict.Lines{}, names: s.names, layer: s.layer}
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
		return nil, located(err)
	}
	if s.finish != nil {
		s.finish(loaded.Config)
	}
	loaded.Files = s.files
	if s.own != nil {
		kind = kindBoth
		if err := s.layOver(p, loaded); err != nil {
			return nil, located(err)
		}
	}
	loaded.unset = loaded.ContainerRuntimeEndpoint == ""
	doubts, err := loaded.complete(kind)
	if err != nil {
		var f *strict.FieldError
		if errors.As(err, &f) {
			f.Line = p.line(strings.Split(f.Field, separator))
		}
		return nil, located(err)
	}
	if len(p.ignored) > 0 {
		loaded.Warnings = append(loaded.Warnings, "ignored fields of the kubelet: "+
			strings.Join(p.ignored, ", "))
	}
	loaded.Warnings = append(append(loaded.Warnings, p.odd...), doubts...)
	return loaded, nil
}

// located puts the error of a field, which has a line, into this package's form.
func located(err error) error {
	var f *strict.FieldError
	if !errors.As(err, &f) {
		return err
	}
	if f.Field == "" {
		return lineError(f.Line, "%w", f.Err)
	}
	return lineError(f.Line, "%s: %w", f.Field, f.Err)
}

// document finds the one mapping that a file holds.
func document(text []byte) (*yaml.Node, error) {
	file := strict.Document{APIVersion: APIVersionAgent, Kind: KindAgent}
	root, err := file.Root(text)
	var syntax *strict.SyntaxError
	if errors.As(err, &syntax) {
		return nil, syntaxError(syntax.Err)
	}
	return root, located(err)
}

// syntaxError puts yaml's "yaml: line 3: what" into this package's form.
func syntaxError(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, what, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(number); err == nil {
				// The library counts a parser's lines from 0 and a scanner's from 1 (yaml/v3 decode.go,
				// parser.fail).
				if strings.HasPrefix(what, "did not find expected") {
					line++
				}
				return lineError(line, "not YAML: %s", what)
			}
		}
	}
	return lineError(1, "not YAML: %s", text)
}

// separator stands between the keys of a field's path.
const separator = ": "

type parser struct {
	lines   strict.Lines // by paths of keys joined by the separator
	names   []string     // of the files that lines are of
	layer   func(file int) Source
	flags   map[string]string // of a kubelet, by the field that they set
	lenient bool              // a kubelet's file: what a kubelet accepts is a warning
	ignored []string          // fields that this program does not know, in a kubelet's file
	odd     []string          // what a kubelet accepts and should not
}

// line is that of the longest part of a path that the file has.
func (p *parser) line(path []string) int { return p.lines.Nearest(path, separator) }

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
	d := &strict.Decoder{Lines: p.lines, PlainKeys: true, Describe: describe, Special: special,
		Twice: p.twice, PassOver: p.passOver}
	return d.Mapping(root, nil, func(key, value *yaml.Node) error {
		if key.Value == "apiVersion" || key.Value == "kind" {
			return nil
		}
		return d.Member(key, value, target, known, nil)
	})
}

// knownFields are the yaml names of a struct's fields. A kubelet's file cannot set what the kubelet
// does not have.
func knownFields(t reflect.Type, kubelet bool) map[string]int {
	known := strict.Index(t)
	maps.DeleteFunc(known, func(_ string, i int) bool {
		return kubelet &&
			t.Field(i).Tag.Get("own") != ""
	})
	return known
}

// twice refuses a key that comes again, except in a kubelet's file.
func (p *parser) twice(field string, line, before int) error {
	if !p.lenient {
		return strict.SetTwice(field, line, before)
	}
	p.odd = append(p.odd, fmt.Sprintf(
		"line %d: %s is set a second time, first on line %d: the last one counts",
		line&(1<<lineBits-1), field, before&(1<<lineBits-1)))
	return nil
}

// passOver notes an unknown field of a kubelet's file.
func (p *parser) passOver(path []string) bool {
	if p.lenient {
		p.ignored = append(p.ignored, strings.Join(path, separator))
	}
	return p.lenient
}

// special decodes durations as the kubelet's files write them.
func special(n *yaml.Node, into reflect.Value) (want string, fits bool) {
	v, ok := into.Addr().Interface().(*Duration)
	if !ok {
		return "", false
	}
	d, err := time.ParseDuration(n.Value)
	if err != nil || n.Kind != yaml.ScalarNode {
		return `a duration as "1m30s"`, false
	}
	*v = Duration(d)
	return "", true
}

// describe returns what a value is called in an error.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return strconv.Quote(n.Value)
}
