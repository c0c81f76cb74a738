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

// Limits of a folder of drop-ins. A node usually has fewer than ten.
const (
	maxDropins     = 1000 // files and folders
	maxDropinDepth = 8    // nested folders
	maxDropinBytes = 8 << 20
)

// dropinSuffix is the suffix of the files in a kubelet's --config-dir that the kubelet reads.
const dropinSuffix = ".conf"

// lineBits is the number of bits for a line in its file. The line of a node is the number of its
// file times 1<<lineBits, plus the line in that file.
const lineBits = 24

// parts are the sources of a configuration, in the order in which a kubelet merges them.
type parts struct {
	root *yaml.Node // of the file; nil: no file
	// the file's folder, for the relative paths of a kubelet's file; empty: unknown
	dir        string
	dropins    []dropin
	flags      *yaml.Node    // a mapping of fields that flags set; nil: no flags
	finish     func(*Config) // called before the checks; nil: no call
	cmdline    *commandLine  // the kubelet's, with these flags; nil: no kubelet
	own        *yaml.Node    // the agent's file over all others; nil: none, or root is the agent's file
	info       os.FileInfo   // of the file; nil: not read below this process's root directory
	openedPath string        // path of the file; empty: it was already open
	files      []string      // files and folders that were read, in this process's view
	names      []string      // of the file and the drop-ins, by file number
}

// dropin is a file that is merged over another one.
type dropin struct {
	name string
	root *yaml.Node
}

// merged merges all parts as the kubelet does (cmd/kubelet/app/server.go NewKubeletCommand, v1.37):
// its file with the default thresholds if it sets none, then each drop-in as a JSON merge patch
// (RFC 7396), then flags, which replace.
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
			numberLines(d.root, i+1, map[*yaml.Node]bool{})
			mergePatch(p.root, d.root, 0)
		}
		// the defaults do not apply any more
		if v := valueOf(p.root, "evictionHard"); v == nil || v.Tag == "!!null" {
			setKey(p.root, "evictionHard", &yaml.Node{Kind: yaml.MappingNode, Line: 1})
		}
		unsetKey(p.root, "mergeDefaultEvictionSettings") // the merge is done
	}
	if p.flags != nil {
		for i := 0; i+1 < len(p.flags.Content); i += 2 {
			setKey(p.root, p.flags.Content[i].Value, p.flags.Content[i+1])
		}
		if valueOf(p.flags, "evictionHard") != nil { // the kubelet merges defaults before flags
			unsetKey(p.root, "mergeDefaultEvictionSettings")
		}
	}
	return p.root
}

// defaultHard adds the default thresholds to a kubelet's file, so that drop-ins are merged over
// them (cmd/kubelet/app/server.go loadConfigFile).
func defaultHard(root *yaml.Node) {
	hard, merge := valueOf(root, "evictionHard"), valueOf(root, "mergeDefaultEvictionSettings")
	if hard == nil || hard.Tag == "!!null" {
		hard = &yaml.Node{Kind: yaml.MappingNode}
		setKey(root, "evictionHard", hard)
	} else if hard.Kind != yaml.MappingNode || merge == nil || merge.Value != "true" {
		return
	}
	for signal, value := range eviction.DefaultHard() {
		if valueOf(hard, signal) == nil {
			// line 0 marks a default
			setKey(hard, signal, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
		}
	}
}

func scalarNode(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: value, Line: 1}
}

// numberLines adds the number of its file to the lines of a drop-in's nodes.
func numberLines(n *yaml.Node, file int, seen map[*yaml.Node]bool) {
	if seen[n] {
		return
	}
	seen[n] = true
	n.Line += file << lineBits
	for _, c := range n.Content {
		numberLines(c, file, seen)
	}
}

// mergePatch merges a patch into a mapping.
func mergePatch(base, patch *yaml.Node, depth int) {
	const deepest = 16 // an anchor may contain itself
	for i := 0; i+1 < len(patch.Content); i += 2 {
		key, value := patch.Content[i], patch.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		switch old := valueOf(base, key.Value); {
		case value.Tag == "!!null":
			unsetKey(base, key.Value)
		case value.Kind == yaml.MappingNode && depth < deepest:
			if old == nil || old.Kind != yaml.MappingNode {
				old = &yaml.Node{Kind: yaml.MappingNode, Line: value.Line}
			}
			mergePatch(old, value, depth+1)
			replaceKey(base, key, old)
		default:
			replaceKey(base, key, value)
		}
	}
}

// valueOf returns the last value of a key, or nil.
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

func unsetKey(mapping *yaml.Node, key string) {
	for i := len(mapping.Content) - 2; i >= 0; i -= 2 {
		if mapping.Content[i].Value == key {
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
		}
	}
}

func setKey(mapping *yaml.Node, key string, value *yaml.Node) {
	replaceKey(mapping, &yaml.Node{Kind: yaml.ScalarNode, Value: key, Line: value.Line}, value)
}

func replaceKey(mapping, key, value *yaml.Node) {
	unsetKey(mapping, key.Value)
	mapping.Content = append(mapping.Content, key, value)
}

// sourceOf returns the source that a file number stands for.
func (p *parts) sourceOf(file int) Source {
	switch {
	case p.own != nil && file == len(p.names)-1, p.own == nil && file == 0 &&
		checkKubeletKind(p.root) != nil:
		return SourceOwn
	case file == 0:
		return SourceKubelet
	case file <= len(p.dropins):
		return SourceDropIn
	}
	return SourceKubeletFlag
}

// checkTrusted rejects a file that another user may have written.
func (p *parts) checkTrusted() error {
	if p == nil || p.info == nil {
		return nil
	}
	if err := checkTrusted(p.names[0], p.info); err != nil || p.openedPath == "" || !p.info.Mode().IsRegular() {
		return err
	}
	return checkFolders(p.openedPath)
}

// applyOwn merges the agent's file over a kubelet's configuration. A field of the file replaces the
// kubelet's, a mapping as a whole, because the file must be valid by itself.
func (p *parts) applyOwn(into *parser, loaded *Loaded) error {
	numberLines(p.own, len(p.names)-1, map[*yaml.Node]bool{})
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

// addPlace adds the file to an error that begins with the number of a line.
func (p *parts) addPlace(err error) error {
	number, what, ok := strings.Cut(err.Error(), ": ")
	line, bad := strconv.Atoi(number)
	if !ok || bad != nil {
		return fmt.Errorf("config %s: %w", p.names[0], err)
	}
	return fmt.Errorf("config %s: %s", place(p.names, line), what)
}

// place returns "FILE:LINE" of a line that contains its file's number.
func place(names []string, line int) string {
	return fmt.Sprintf("%s:%d", names[min(line>>lineBits, len(names)-1)], line&(1<<lineBits-1))
}

// readDropins reads the drop-ins of a folder in the kubelet's order: by name, with the content of a
// subfolder in its place.
func readDropins(host *read.HostRoot, dir string) ([]dropin, error) {
	w := &walk{host: host}
	err := w.folder(dir, 0)
	return w.found, err
}

// walk collects the files of a folder of drop-ins.
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
		return fmt.Errorf("%s: more than %d files or %d nested folders: is this the folder of the "+
			"kubelet's drop-ins?", dir, maxDropins, maxDropinDepth)
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
		return fmt.Errorf("drop-ins exceed %d bytes in total", maxDropinBytes)
	}
	root, err := parseDocument(content)
	if err == nil {
		err = checkKubeletKind(root)
	}
	if err != nil {
		return fmt.Errorf("%s:%w", path, err)
	}
	w.found = append(w.found, dropin{path, root})
	return nil
}

// checkKubeletKind returns an error if a file is not a kubelet's configuration.
func checkKubeletKind(root *yaml.Node) error {
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
		return nil, &os.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	if err := checkTrusted(path, info); err != nil {
		return nil, err
	}
	dir, err := host.File(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	if err := checkFolder(path, dir); err != nil {
		return nil, err
	}
	content, err := atomicfile.ReadAll(f, maxSize)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return content, nil
}
