package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"jettison/eviction"
	"jettison/internal/base/atomicfile"
	"jettison/stats/read"
)

// Bounds of a folder of drop-ins. A node has a handful.
const (
	maxDropins     = 1000 // files and folders
	maxDropinDepth = 8    // folders in each other
	maxDropinBytes = 8 << 20
)

// dropinSuffix is that of the files in a kubelet's --config-dir which count.
const dropinSuffix = ".conf"

// lineBits is more than the lines of a file have: the number of a line is that of its file times
// 1<<lineBits, and its own.
const lineBits = 24

// parts are what a configuration is made of, in the order in which a kubelet takes them.
type parts struct {
	root *yaml.Node // of the file; nil: there is none
	// the file's folder, for the relative paths of a kubelet's file; empty: not known
	dir     string
	dropins []dropin
	flags   *yaml.Node    // a mapping of fields that flags set; nil: there are none
	finish  func(*Config) // before it is checked; nil: nothing
	flagged *commandLine  // whose flags those are; nil: nobody's
	own     *yaml.Node    // of a file of our own, over all that; nil: there is none, or root is one
	info    os.FileInfo   // of the file; nil: it was not read by this process's own root directory
	opened  string        // the path of that; empty: it was open
	files   []string      // and folders that were read, as this process sees them
	names   []string      // of files: of the file itself, of the drop-ins
}

// dropin is a file that lies over another one.
type dropin struct {
	name string
	root *yaml.Node
}

// merged is the mapping that all parts come to, as a kubelet's (cmd/kubelet/app/server.go
// NewKubeletCommand, v1.36): its file with the default thresholds, where it sets none, then each
// drop-in as a JSON merge patch (RFC 7396), then flags, which replace.
func (p *parts) merged(kind string) *yaml.Node {
	if kind != KindKubelet {
		return p.root
	}
	for _, name := range []string{"staticPodPath", "podLogsDir"} {
		if v := valueOf(p.root, name); v != nil && v.Kind == yaml.ScalarNode && v.Value != "" &&
			!filepath.IsAbs(v.Value) && p.dir != "" {
			v.Value = filepath.Join(p.dir, v.Value)
		}
	}
	if len(p.dropins) > 0 {
		defaultHard(p.root)
		for i, d := range p.dropins {
			number(d.root, i+1, map[*yaml.Node]bool{})
			overlay(p.root, d.root, 0)
		}
		// from here on it has no defaults
		if v := valueOf(p.root, "evictionHard"); v == nil || v.Tag == "!!null" {
			set(p.root, "evictionHard", &yaml.Node{Kind: yaml.MappingNode, Line: 1})
		}
		unset(p.root, "mergeDefaultEvictionSettings") // it was
	}
	if p.flags != nil {
		for i := 0; i+1 < len(p.flags.Content); i += 2 {
			set(p.root, p.flags.Content[i].Value, p.flags.Content[i+1])
		}
		if valueOf(p.flags, "evictionHard") != nil { // defaults are merged into the file's, before flags
			unset(p.root, "mergeDefaultEvictionSettings")
		}
	}
	return p.root
}

// defaultHard writes out the default thresholds of a kubelet's file (cmd/kubelet/app/server.go
// loadConfigFile): drop-ins lie over them.
func defaultHard(root *yaml.Node) {
	hard, merge := valueOf(root, "evictionHard"), valueOf(root, "mergeDefaultEvictionSettings")
	if hard == nil || hard.Tag == "!!null" {
		hard = &yaml.Node{Kind: yaml.MappingNode}
		set(root, "evictionHard", hard)
	} else if hard.Kind != yaml.MappingNode || merge == nil || merge.Value != "true" {
		return
	}
	for signal, value := range eviction.DefaultHard() {
		if valueOf(hard, signal) == nil {
			// without a line: nobody wrote it
			set(hard, signal, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
		}
	}
}

func text(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: value, Line: 1}
}

// number gives the nodes of a drop-in the number of its file.
func number(n *yaml.Node, file int, seen map[*yaml.Node]bool) {
	if seen[n] {
		return
	}
	seen[n] = true
	n.Line += file << lineBits
	for _, c := range n.Content {
		number(c, file, seen)
	}
}

// overlay merges a patch into a mapping.
func overlay(base, patch *yaml.Node, depth int) {
	const deepest = 16 // an anchor may hold itself
	for i := 0; i+1 < len(patch.Content); i += 2 {
		key, value := patch.Content[i], patch.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		switch old := valueOf(base, key.Value); {
		case value.Tag == "!!null":
			unset(base, key.Value)
		case value.Kind == yaml.MappingNode && depth < deepest:
			if old == nil || old.Kind != yaml.MappingNode {
				old = &yaml.Node{Kind: yaml.MappingNode, Line: value.Line}
			}
			overlay(old, value, depth+1)
			replace(base, key, old)
		default:
			replace(base, key, value)
		}
	}
}

// valueOf is the last value of a key; nil: it has none.
func valueOf(mapping *yaml.Node, key string) *yaml.Node {
	for i := len(mapping.Content) - 2; i >= 0; i -= 2 {
		if mapping.Content[i].Value == key {
			if v := mapping.Content[i+1]; v.Kind != yaml.AliasNode {
				return v
			}
			return mapping.Content[i+1].Alias
		}
	}
	return nil
}

func unset(mapping *yaml.Node, key string) {
	for i := len(mapping.Content) - 2; i >= 0; i -= 2 {
		if mapping.Content[i].Value == key {
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
		}
	}
}

func set(mapping *yaml.Node, key string, value *yaml.Node) {
	replace(mapping, &yaml.Node{Kind: yaml.ScalarNode, Value: key, Line: value.Line}, value)
}

func replace(mapping, key, value *yaml.Node) {
	unset(mapping, key.Value)
	mapping.Content = append(mapping.Content, key, value)
}

// layer is what the file of that number is.
func (p *parts) layer(file int) Source {
	switch {
	case p.own != nil && file == len(p.names)-1, p.own == nil && file == 0 &&
		isKubelets(p.root) != nil:
		return SourceOwn
	case file == 0:
		return SourceKubelet
	case file <= len(p.dropins):
		return SourceDropIn
	}
	return SourceKubeletFlag
}

// trusted refuses what others may have written.
func (p *parts) trusted() error {
	if p == nil || p.info == nil {
		return nil
	}
	if err := trusted(p.names[0], p.info); err != nil || p.opened == "" || !p.info.Mode().IsRegular() {
		return err
	}
	return trustedFolders(p.opened)
}

// layOver puts the file of our own over what a kubelet goes by: what it sets takes the place of
// that, a mapping as a whole, for it was written to be right by itself.
func (p *parts) layOver(into *parser, loaded *Loaded) error {
	number(p.own, len(p.names)-1, map[*yaml.Node]bool{})
	over := &yaml.Node{Kind: yaml.MappingNode, Line: p.own.Line}
	for i := 0; i+1 < len(p.own.Content); i += 2 {
		key, value := p.own.Content[i], p.own.Content[i+1]
		if value.ShortTag() == "!!null" {
			continue
		}
		over.Content = append(over.Content, key, value)
		maps.DeleteFunc(into.lines, func(path string, _ int) bool {
			return path == key.Value || strings.HasPrefix(path, key.Value+": ")
		})
		delete(into.flags, key.Value)
	}
	if valueOf(over, "evictionHard") != nil && valueOf(over, "mergeDefaultEvictionSettings") == nil {
		loaded.MergeDefaultEvictionSettings = false
	}
	if valueOf(over, "evictionSoft") != nil && valueOf(over, "evictionSoftGracePeriod") == nil {
		loaded.EvictionSoftGracePeriod = nil
	}
	loaded.Kind, into.lenient = KindAgent, false
	return into.fields(over, loaded)
}

// blame puts the file before an error that begins with the number of a line.
func (p *parts) blame(err error) error {
	number, what, ok := strings.Cut(err.Error(), ": ")
	line, bad := strconv.Atoi(number)
	if !ok || bad != nil {
		return fmt.Errorf("config %s: %w", p.names[0], err)
	}
	return fmt.Errorf("config %s: %s", place(p.names, line), what)
}

// place is "FILE:LINE" of a line with its file's number.
func place(names []string, line int) string {
	return fmt.Sprintf("%s:%d", names[min(line>>lineBits, len(names)-1)], line&(1<<lineBits-1))
}

// readDropins reads the drop-ins of a folder in the kubelet's order: by name, and what lies in a
// folder there at its place.
func readDropins(host *read.HostRoot, dir string) ([]dropin, error) {
	w := &walk{host: host}
	err := w.folder(dir, 0)
	return w.found, err
}

// walk is a way through a folder of drop-ins.
type walk struct {
	host    *read.HostRoot
	found   []dropin
	entries int
	bytes   int
}

func (w *walk) folder(dir string, depth int) error {
	f, err := w.host.File(dir)
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(maxDropins + 1)
	f.Close()
	if len(entries) == 0 && err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("list drop-ins: %w", err)
	}
	if w.entries += len(entries); w.entries > maxDropins || depth > maxDropinDepth {
		return fmt.Errorf("%s: more than %d files, or %d folders in each other: name the folder of the kubelet's drop-ins",
			dir, maxDropins, maxDropinDepth)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			err = w.folder(path, depth+1)
		case filepath.Ext(e.Name()) == dropinSuffix:
			err = w.file(path)
		default:
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) file(path string) error {
	content, err := readHost(w.host, path)
	if err != nil {
		return err
	}
	if w.bytes += len(content); w.bytes > maxDropinBytes {
		return fmt.Errorf("drop-ins of more than %d bytes", maxDropinBytes)
	}
	root, err := document(content)
	if err == nil {
		err = isKubelets(root)
	}
	if err != nil {
		return fmt.Errorf("%s:%w", path, err)
	}
	w.found = append(w.found, dropin{path, root})
	return nil
}

// isKubelets says whether a file is a kubelet's configuration.
func isKubelets(root *yaml.Node) error {
	switch kind, err := (&parser{}).kind(root); {
	case err != nil || kind != KindKubelet:
		line, have := root.Line, [2]string{}
		for i, key := range []string{"apiVersion", "kind"} {
			if v := valueOf(root, key); v != nil {
				have[i], line = v.Value, v.Line
			}
		}
		return lineError(line, "apiVersion %q, kind %q: want %s, %s", have[0], have[1], APIVersionKubelet,
			KindKubelet)
	}
	return nil
}

// readHost reads a regular file of the host.
func readHost(host *read.HostRoot, path string) ([]byte, error) {
	f, err := host.File(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "read", Path: path, Err: errors.New("is no regular file")}
	}
	if err := trusted(path, info); err != nil {
		return nil, err
	}
	dir, err := host.File(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	if err := trustedFolder(path, dir); err != nil {
		return nil, err
	}
	content, err := atomicfile.ReadAll(f, maxSize)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return content, nil
}
