package selfprotect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"jettison/cgroup"
)

// tree creates a directory that looks like a cgroup hierarchy.
func tree(t *testing.T, files map[string]string) (*cgroup.FS, func(dir string) string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{name: text, filepath.Join(filepath.Dir(name), "cgroup.procs"): ""} {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	fs, err := cgroup.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	return fs, func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name, "memory.min"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
}

func TestMemoryIsRaisedAndRestored(t *testing.T) {
	fs, min := tree(t, map[string]string{"a/memory.min": "max\n", "a/b/memory.min": "1048576\n", "a/b/own/memory.min": "0\n"})
	for name, parents := range map[string]bool{"alone": false, "with parents": true} {
		undo, refused := Memory(fs, "/a/b/own", parents)
		want := "1048576"
		if parents {
			want = "51380224"
		}
		if min("a") != "max" || min("a/b") != want || min("a/b/own") != "50331648" {
			t.Errorf("%s: memory.min of a, a/b, a/b/own = %s, %s, %s, refused %v, want max, %s, 50331648", name, min("a"), min("a/b"), min("a/b/own"), refused, want)
		}
		for range 2 {
			if err := undo(); err != nil {
				t.Error(err)
			}
		}
		if min("a") != "max" || min("a/b") != "1048576" || min("a/b/own") != "0" {
			t.Errorf("%s: memory.min after undo = %s, %s, %s, want max, 1048576, 0", name, min("a"), min("a/b"), min("a/b/own"))
		}
	}
}

func TestMemoryThatCannotBeRaised(t *testing.T) {
	fs, _ := tree(t, map[string]string{"a/cgroup.events": ""})
	for _, own := range []string{"", "/", "a", "none", "../../.."} {
		undo, refused := Memory(fs, own, true)
		if len(refused) != 1 || undo() != nil {
			t.Errorf("Memory of cgroup %q refused %v, want one error and an undo without one", own, refused)
		}
	}
}

func TestNotes(t *testing.T) {
	for text, want := range map[string]bool{"0 1": true, "": false, "1": false, "a b": false, "1 2 3": false, "-1 2": false} {
		if _, _, ok := parseNote(text); ok != want {
			t.Errorf("parseNote(%q) accepted = %v, want %v", text, ok, want)
		}
	}
}
