package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is written is what is read, whatever was longer before; a missing file is not a vanished group.
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
			t.Errorf("%v: reads %v, %q, %v, %v", l, got, b, err, readErr)
		}
	}
	err = g.SetLimit(FilePIDsMax, Limit{Bytes: 1})
	if !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrVanished) || !strings.Contains(err.Error(), "/a/pids.max") {
		t.Errorf("%v", err)
	}
	if err := os.RemoveAll(filepath.Join(fs.Mount(), "a")); err != nil {
		t.Fatal(err)
	}
	if err := g.SetLimit(FileMemoryMax, Limit{}); !errors.Is(err, ErrVanished) {
		t.Errorf("%v, want ErrVanished", err)
	}
}
