package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// program is a binary of this module, and the modules that it links.
type program struct {
	name    string // "jettison"
	path    string // of its package
	sha256  string
	goos    string
	goarch  string
	modules []module // by path; std is Go's standard library
}

// module is a linked module.
type module struct {
	path, version string
	licenses      []string // SPDX identifiers
	files         []licenseFile
}

// licenseFile is a licence, a notice or a copyright statement of a module.
type licenseFile struct {
	name string // relative to the module
	text string
}

// std is the module of Go's standard library.
const std = "std"

// target is the program to list modules of, and how it is built.
type target struct {
	path, goos, goarch, tags string
}

// inspect reads which modules a binary links, and their licences. The module cache must have the
// sources that the binary was built from.
func inspect(binary string) (*program, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read build information of %s: %w", binary, err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	p := &program{name: path.Base(info.Path), path: info.Path, sha256: hex.EncodeToString(sum[:]),
		goos: settings["GOOS"], goarch: settings["GOARCH"]}
	p.modules, err = linkedModules(target{path: info.Path, goos: p.goos, goarch: p.goarch,
		tags: settings["-tags"]})
	if err != nil {
		return nil, fmt.Errorf("list modules of %s: %w", binary, err)
	}
	want := []string{std + " " + info.GoVersion}
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		want = append(want, dep.Path+" "+dep.Version)
	}
	var got []string
	for _, m := range p.modules {
		got = append(got, m.path+" "+m.version)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return nil, fmt.Errorf("%s was built from other modules than this checkout has: build it again\n"+
			"binary: %q\ncheckout: %q", binary, want, got)
	}
	return p, nil
}

// listFormat prints the folder of a package, and its module's path, version and folder.
const listFormat = "{{if not .Standard}}{{with .Module}}{{if not .Main}}" +
	"{{$.Dir}}\t{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}{{end}}"

// linkedModules lists the modules of which a program links packages, with their licences. Licence
// files are those in the folders of linked packages and above, up to the module's.
func linkedModules(t target) ([]module, error) {
	root, version, err := goRoot()
	if err != nil {
		return nil, err
	}
	out, err := run(t, "go", "list", "-deps", "-tags="+t.tags, "-f", listFormat, t.path)
	if err != nil {
		return nil, err
	}
	found := map[string]*module{std: {path: std, version: version}}
	if err := found[std].add(root, root); err != nil {
		return nil, err
	}
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 4 {
			continue // of the standard library, or of this module
		}
		dir, path, version, root := fields[0], fields[1], fields[2], fields[3]
		if found[path] == nil {
			found[path] = &module{path: path, version: version}
		}
		if err := found[path].add(dir, root); err != nil {
			return nil, err
		}
	}
	var modules []module
	for _, path := range slices.Sorted(maps.Keys(found)) {
		m := found[path]
		if m.licenses, err = licensesOf(m.files); err != nil {
			return nil, fmt.Errorf("module %s %s: %w", m.path, m.version, err)
		}
		modules = append(modules, *m)
	}
	return modules, nil
}

// goRoot returns the folder and the version of the Go toolchain.
func goRoot() (root, version string, err error) {
	out, err := run(target{}, "go", "env", "GOROOT", "GOVERSION")
	if err != nil {
		return "", "", err
	}
	root, version, _ = strings.Cut(strings.TrimSpace(out), "\n")
	return root, version, nil
}

// run runs a command for a target and returns its standard output.
func run(t target, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	if t.goarch != "" {
		cmd.Env = append(cmd.Env, "GOOS="+t.goos, "GOARCH="+t.goarch)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// licenseName matches names of files that a distributor must pass on.
var licenseName = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|copyright|notice)s?\b`)

// add adds the licence files in a folder of a module and in the folders above it.
func (m *module) add(dir, root string) error {
	for ; ; dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := m.addFile(dir, root, e); err != nil {
				return err
			}
		}
		if dir == root || dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// addFile adds a file if it is a licence file that the module does not have yet.
func (m *module) addFile(dir, root string, e fs.DirEntry) error {
	file := filepath.Join(dir, e.Name())
	name, err := filepath.Rel(root, file)
	if err != nil {
		return err
	}
	known := slices.ContainsFunc(m.files, func(f licenseFile) bool { return f.name == name })
	if known || !e.Type().IsRegular() || filepath.Ext(e.Name()) == ".go" ||
		!licenseName.MatchString(e.Name()) {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	m.files = append(m.files, licenseFile{name: name, text: string(text)})
	slices.SortFunc(m.files, func(a, b licenseFile) int { return strings.Compare(a.name, b.name) })
	return nil
}
