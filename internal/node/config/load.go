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

// maxSize bounds a configuration file, in bytes. A kubelet's has a few KiB.
const maxSize = 1 << 20

// pipeLimit bounds the reading of a configuration from a pipe, for example of a shell's process
// substitution.
const pipeLimit = 30 * time.Second

var errPipe = fmt.Errorf("pipe not written and closed within %v: name a file",
	pipeLimit)

// Loaded is a configuration with its origins and warnings.
type Loaded struct {
	*Config
	Path     string   // empty: no file, the defaults
	From     string   // the layers, for people: the file, drop-ins, the kubelet
	Kind     string   // KindAgent or KindKubelet
	Warnings []string // one line each

	// Kubelet reports that the configuration of the node's kubelet is one of the layers.
	Kubelet bool
	// EndpointFrom is the reason for the value of containerRuntimeEndpoint, for people; empty before
	// the search for the runtime.
	EndpointFrom string
	// Files are the files and folders that were read, in this process's view.
	Files []string

	lines           *parser           // has the lines of fields; nil without a file
	origins         map[string]Origin // of fields that are not set in a file
	endpointCleared bool              // a file sets containerRuntimeEndpoint to an empty value
	sockets         []Socket          // where to search for the runtime if no layer names it
}

// AwaitsKubelet reports that a kubelet's configuration would be a layer if there were one that can
// be loaded.
func (l *Loaded) AwaitsKubelet() bool { return l.Kind == KindAgent && !l.Kubelet }

// ErrorAt returns the error of a field that proved wrong after loading: file, line, field and cause.
// Without a file it names the field only.
func (l *Loaded) ErrorAt(e *eviction.FieldError) error {
	if l.lines == nil {
		return fmt.Errorf("config: %s", e.Line())
	}
	return fmt.Errorf("config %s: %s", place(l.lines.names, l.lines.line(e.Field)), e.Line())
}

// Load reads the file at path. With an empty path it reads DefaultPath and, if that is missing,
// returns the defaults. It waits for a pipe's writer until ctx ends or for 30 s. An error is one
// line: file, line, field, cause.
func Load(ctx context.Context, path string) (*Loaded, error) {
	p, err := readParts(ctx, path)
	if p == nil && err == nil {
		return &Loaded{Config: Default(), Kind: KindAgent, From: FromDefaults}, nil
	}
	if err != nil {
		return nil, err
	}
	return p.loadNamed()
}

// Check reads the file at path as the agent's file, and nothing else of the node; "-" is standard
// input.
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
		err = p.checkTrusted()
	}
	if err != nil {
		return nil, err
	}
	return p.loadNamed()
}

// readParts reads the file at path, or DefaultPath if path is empty. It returns nil if DefaultPath
// is missing.
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
		return nil, fmt.Errorf("config: %w: create it (at least the two lines \"apiVersion: %s\" and "+
			"\"kind: %s\"), or omit --config: then the agent reads %s if it exists, else it uses the "+
			"defaults", err, APIVersionAgent, KindAgent, DefaultPath)
	}
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer func() { _ = f.Close() }()
	p, err := partsOf(f, path)
	if err == nil {
		p.openedPath = path
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
		return nil, fmt.Errorf("config: %s is larger than %d bytes: is this the configuration file?",
			path, maxSize)
	}
	p := &parts{names: []string{path}, info: info}
	if full, err := filepath.Abs(path); err == nil {
		p.dir, p.files = filepath.Dir(full), []string{full}
	}
	if p.root, err = parseDocument(text); err != nil {
		return nil, p.addPlace(err)
	}
	return p, nil
}

// loadNamed loads parts that were read from a file. Errors name the file.
func (p *parts) loadNamed() (*Loaded, error) {
	l, err := p.load()
	if err != nil {
		return nil, p.addPlace(err)
	}
	l.Path, l.From = p.names[0], p.names[0]
	if len(p.dropins) > 0 {
		l.From += fmt.Sprintf(", with %d drop-ins", len(p.dropins))
	}
	return l, nil
}

// lineError returns the error "LINE: CAUSE".
func lineError(line int, format string, args ...any) error {
	return fmt.Errorf("%d: "+format, append([]any{max(line, 1)}, args...)...)
}

// load merges the parts, decodes the fields and checks them.
func (s *parts) load() (*Loaded, error) {
	p := &parser{lines: strict.Lines{}, names: s.names, sourceOf: s.sourceOf}
	if s.cmdline != nil {
		p.flags = s.cmdline.flagOf
	}
	kind, err := p.kind(s.root)
	if err != nil {
		return nil, err
	}
	p.lenient = kind == KindKubelet
	loaded := &Loaded{Config: defaults(kind), Kind: kind, lines: p}
	if err := p.fields(s.merged(kind), loaded); err != nil {
		return nil, formatFieldError(err)
	}
	if s.finish != nil {
		s.finish(loaded.Config)
	}
	loaded.Files = s.files
	if s.own != nil {
		kind = kindBoth
		if err := s.applyOwn(p, loaded); err != nil {
			return nil, formatFieldError(err)
		}
	}
	loaded.endpointCleared = loaded.ContainerRuntimeEndpoint == ""
	doubts, err := loaded.complete(kind)
	if err != nil {
		var f *strict.FieldError
		if errors.As(err, &f) {
			f.Line = p.line(strings.Split(f.Field, separator))
		}
		return nil, formatFieldError(err)
	}
	if len(p.ignored) > 0 {
		loaded.Warnings = append(loaded.Warnings, "ignored fields of the kubelet's file: "+
			strings.Join(p.ignored, ", "))
	}
	loaded.Warnings = append(append(loaded.Warnings, p.warnings...), doubts...)
	return loaded, nil
}

// formatFieldError formats the error of a field, which has a line, for this package.
func formatFieldError(err error) error {
	var f *strict.FieldError
	if !errors.As(err, &f) {
		return err
	}
	if f.Field == "" {
		return lineError(f.Line, "%w", f.Err)
	}
	return lineError(f.Line, "%s: %w", f.Field, f.Err)
}

// parseDocument returns the one mapping of a file.
func parseDocument(text []byte) (*yaml.Node, error) {
	file := strict.Document{APIVersion: APIVersionAgent, Kind: KindAgent}
	root, err := file.Root(text)
	var syntax *strict.SyntaxError
	if errors.As(err, &syntax) {
		return nil, syntaxError(syntax.Err)
	}
	return root, formatFieldError(err)
}

// syntaxError converts "yaml: line 3: CAUSE" to this package's form.
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

// separator separates the keys of a field's path.
const separator = ": "

type parser struct {
	lines    strict.Lines // by paths of keys joined by the separator
	names    []string     // of files, by the number in a line
	sourceOf func(file int) Source
	flags    map[string]string // of a kubelet, by field
	lenient  bool              // a kubelet's file: values that a kubelet accepts yield warnings
	ignored  []string          // fields of a kubelet's file that the agent lacks
	warnings []string          // warnings about values that a kubelet accepts and should not
}

// where names a line in a warning, with its file if that is a drop-in.
func (p *parser) where(line int) string {
	if line>>lineBits > 0 {
		return place(p.names, line)
	}
	return fmt.Sprintf("line %d", line)
}

// line returns the line of the longest prefix of path that the file has.
func (p *parser) line(path []string) int { return p.lines.Nearest(path, separator) }

// kind returns the kind of a file, from its apiVersion and kind.
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

// fields decodes the root mapping into the Config, key by key.
func (p *parser) fields(root *yaml.Node, loaded *Loaded) error {
	target := reflect.ValueOf(loaded.Config).Elem()
	known := knownFields(target.Type(), loaded.Kind == KindKubelet)
	d := &strict.Decoder{Lines: p.lines, PlainKeys: true, Describe: describe, Special: decodeDuration,
		OnDuplicate: p.duplicate, IgnoreUnknown: p.ignoreUnknown, Hint: hint}
	return d.Mapping(root, nil, func(key, value *yaml.Node) error {
		if key.Value == "apiVersion" || key.Value == "kind" {
			return nil
		}
		return d.Member(key, value, target, known, nil)
	})
}

// knownFields returns the fields of a struct by YAML name. A kubelet's file cannot set fields that
// the kubelet lacks.
func knownFields(t reflect.Type, kubelet bool) map[string]int {
	known := strict.Index(t)
	maps.DeleteFunc(known, func(_ string, i int) bool {
		return kubelet &&
			t.Field(i).Tag.Get("own") != ""
	})
	return known
}

// duplicate rejects a duplicate key. In a kubelet's file it is a warning.
func (p *parser) duplicate(field string, line, before int) error {
	if !p.lenient {
		return strict.DuplicateError(field, line, before)
	}
	p.warnings = append(p.warnings, fmt.Sprintf(
		"%s: %s is set a second time, first on line %d: the last value is used", p.where(line), field,
		before&(1<<lineBits-1)))
	return nil
}

// ignoreUnknown accepts a field of a kubelet's file that the agent lacks. It is a warning if a kubelet
// ignores the field too.
func (p *parser) ignoreUnknown(key *yaml.Node, path []string) bool {
	if !p.lenient {
		return false
	}
	if field := strings.Join(path, separator); kubeletFields[field] {
		p.ignored = append(p.ignored, field)
	} else {
		p.warnings = append(p.warnings, fmt.Sprintf("%s: the kubelet ignores the unknown field %q%s",
			p.where(key.Line), field, hintForKubelet(path)))
	}
	return true
}

// decodeDuration decodes durations in the form of the kubelet's files.
func decodeDuration(n *yaml.Node, into reflect.Value) (want string, fits bool) {
	v, ok := into.Addr().Interface().(*Duration)
	if !ok {
		return "", false
	}
	d, err := time.ParseDuration(n.Value)
	if err != nil || n.Kind != yaml.ScalarNode {
		return `a duration such as "1m30s"`, false
	}
	*v = Duration(d)
	return "", true
}

// describe returns the name of a value's type, or the value, for an error.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return strconv.Quote(n.Value)
}
