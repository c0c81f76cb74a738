package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A written value reads back, even after a longer one; a missing file is different from a
// vanished group.
func TestSetLimit(t *testing.T) {
	fs := tree(t, map[string]string{"a/cgroup.procs": "", "a/memory.max": "99999999999\n", "a/cpu.weight": "100\n"})
	g, err := fs.Group("a")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	buf := make([]byte, 64)
	for _, l := range []Limit{{Bytes: 4096}, {Unlimited: true}, {}, {Bytes: 1 << 63}} {
		if err := g.SetLimit(FileMemoryMax, l); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(fs.Mount(), "a/memory.max"))
		if got, readErr := g.Limit(FileMemoryMax, buf); err != nil || readErr != nil || got != l || string(b) != l.String() {
			t.Errorf("limit written as %v reads back as %v (file %q), errors %v and %v", l, got, b, err, readErr)
		}
	}
	err = g.SetLimit(FilePIDsMax, Limit{Bytes: 1})
	if !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrVanished) || !strings.Contains(err.Error(), "/a/pids.max") {
		t.Errorf("write to a missing file: error %v, want os.ErrNotExist", err)
	}
	if err := os.RemoveAll(filepath.Join(fs.Mount(), "a")); err != nil {
		t.Fatal(err)
	}
	if err := g.SetLimit(FileMemoryMax, Limit{}); !errors.Is(err, ErrVanished) {
		t.Errorf("write to a vanished group: error %v, want ErrVanished", err)
	}
}
