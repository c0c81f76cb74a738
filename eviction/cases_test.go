package eviction

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every case of testdata/cases is named by a test or a script of this package. For a case marked
// "differs", the parity page has a row.
func TestEveryCaseIsCovered(t *testing.T) {
	named := func(globs ...string) map[string]bool {
		ids := map[string]bool{}
		for _, glob := range globs {
			paths, err := filepath.Glob(glob)
			if err != nil || len(paths) == 0 {
				t.Fatalf("no files of this package match %s: %v", glob, err)
			}
			for _, path := range paths {
				if path == "cases_test.go" {
					continue
				}
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range regexp.MustCompile(`\b[A-M][0-9]{2}\b`).FindAllString(string(text), -1) {
					ids[id] = true
				}
			}
		}
		return ids
	}
	tests, page := named("*_test.go", "testdata/*.txt"), named("../docs/reference/kubelet-parity.md")
	list, err := os.ReadFile("testdata/cases")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(list)) {
		id, mark, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case id == "#":
			continue
		case mark == "differs" && !page[id]:
			t.Errorf("case %s is marked \"differs\", and docs/reference/kubelet-parity.md has no row for it", id)
		case mark == "" && !tests[id]:
			t.Errorf("case %s is named by no test and no script", id)
		}
		n++
	}
	if n < 70 {
		t.Errorf("testdata/cases has %d cases, want at least 70", n)
	}
}

// Every test that docs/reference/kubelet-parity.md names exists: as a function of some package, a
// script of this one, or a case in it.
func TestParityPageNamesTests(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/kubelet-parity.md")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != ".." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil || all.Len() == 0 {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z]\w+`).FindAllString(string(page), -1) {
		if !strings.Contains(all.String(), "func "+name+"(") {
			t.Errorf("kubelet-parity.md names %s, which no package has", name)
		}
	}
	// script.txt: "heading"; the heading is the beginning of a comment in the script.
	for _, m := range regexp.MustCompile(`\b(\w+\.txt) "([^"]+)"`).FindAllStringSubmatch(string(page), -1) {
		text, err := os.ReadFile("testdata/" + m[1])
		if err != nil || !strings.Contains(string(text), "\n# "+m[2]) && !strings.HasPrefix(string(text), "# "+m[2]) {
			t.Errorf("kubelet-parity.md: %s has no comment that begins with %q (%v)", m[1], m[2], err)
		}
	}
}
