// Package jettison, the root of the module, holds no code but these rules of the house.
package jettison

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The house (docs/build/architecture.md): who may import whom, below this module. What is not listed may import nothing of it.
var mayImport = map[string][]string{
	"stats":        {},
	"stats/read":   {"stats", "cgroup", "cri"},
	"cgroup":       {},
	"cri":          {},
	"cri/critest":  {},
	"cri/nri":      {"cri", "stats", "stats/read"},
	"eviction":     {"stats"},
	"reclaim":      {"stats"},
	"admit":        {"stats"},
	"internal":     {"cgroup", "cri", "cri/nri", "stats", "stats/read", "eviction", "reclaim", "admit", "internal/"},
	"cmd/jettison": {"cgroup", "cri", "cri/nri", "stats", "stats/read", "eviction", "reclaim", "admit", "internal/"},
	"deploy/oci":   {"deploy/oci"},
	"e2e":          {"e2e/", "deploy/oci"},
}

// pure packages decide; they neither read nor wait nor start goroutines.
var pure = []string{"stats", "eviction", "reclaim", "admit"}

// impure are the imports that a pure package has no use for.
var impure = []string{"os", "os/exec", "net", "net/http", "io/ioutil", "syscall", "golang.org/x/sys/unix", "log", "log/slog", "context", "jettison/cgroup", "jettison/cri"}

func TestImportsFollowTheHouse(t *testing.T) {
	for dir, imports := range importsByFolder(t) {
		rule, ok := ruleFor(dir)
		if !ok {
			t.Errorf("%s: no rule for this folder in rules_test.go", dir)
			continue
		}
		for _, path := range imports {
			own, isOwn := strings.CutPrefix(path, "jettison/")
			if isOwn && own != dir && !slices.ContainsFunc(rule, func(allowed string) bool {
				return own == allowed || strings.HasSuffix(allowed, "/") && strings.HasPrefix(own+"/", allowed)
			}) {
				t.Errorf("%s imports %s; it may import %v", dir, own, rule)
			}
		}
		if slices.Contains(pure, dir) {
			for _, path := range imports {
				if slices.Contains(impure, path) {
					t.Errorf("%s is pure and imports %s", dir, path)
				}
			}
		}
	}
}

// ruleFor finds the rule of a folder or of the nearest one above it.
func ruleFor(dir string) ([]string, bool) {
	for ; dir != "."; dir = filepath.Dir(dir) {
		if rule, ok := mayImport[dir]; ok {
			return rule, true
		}
	}
	return nil, false
}

// importsByFolder reads every Go file of the checkout but tests.
func importsByFolder(t *testing.T) map[string][]string {
	out := map[string][]string{}
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		out[dir] = append(out[dir], "") // a folder without imports is one too
		for _, i := range file.Imports {
			out[dir] = append(out[dir], strings.Trim(i.Path.Value, `"`))
		}
	}
	return out
}

func goFiles(t *testing.T) (files []string) {
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != "." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(path)
		documented[dir] = documented[dir] || file.Doc != nil
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no package comment", dir)
		}
	}
}

// What the agent's binary must not drag in: each of these is megabytes of resident memory, or a client of an API that the
// privileged agent does not talk to.
func TestTheAgentStaysLean(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./cmd/jettison").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for _, heavy := range []string{"k8s.io/client-go", "k8s.io/kubernetes", "go.opentelemetry.io/", "github.com/google/go-containerregistry", "testing", "jettison/e2e", "jettison/deploy"} {
			if dep == strings.TrimSuffix(heavy, "/") || strings.HasPrefix(dep, strings.TrimSuffix(heavy, "/")+"/") {
				t.Errorf("the agent links %s", dep)
			}
		}
	}
}
