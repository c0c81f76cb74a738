package selfprotect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// IsolateOOMKills clears memory.oom.group. The former value is restored, also after a crash, except where another program has changed it.
func TestApart(t *testing.T) {
	fs, _ := tree(t, map[string]string{"a/own/memory.oom.group": "1\n", "b/memory.oom.group": "0\n", "c/cgroup.events": ""})
	check := func(name, want string) {
		t.Helper()
		if b, err := os.ReadFile(filepath.Join(fs.Mount(), name, "memory.oom.group")); err != nil || strings.TrimSpace(string(b)) != want {
			t.Errorf("memory.oom.group of %s = %q, %v, want %s", name, b, err, want)
		}
	}
	if _, err := unix.Listxattr(fs.Mount(), nil); err != nil {
		t.Skip("no notes here:", err)
	}
	if _, err := IsolateOOMKills(fs, "/a/own"); err != nil { // a crash follows
		t.Fatal(err)
	}
	check("a/own", "0")
	undo, err := IsolateOOMKills(fs, "/a/own")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := undo(); err != nil {
			t.Error(err)
		}
		check("a/own", "1")
	}
	for _, own := range []string{"/", "", "/b", "/c"} { // nothing to do
		undo, err := IsolateOOMKills(fs, own)
		if err != nil || undo() != nil {
			t.Errorf("Apart of cgroup %q = %v, want nil and an undo without error", own, err)
		}
	}
	check("b", "0")
	if _, err := IsolateOOMKills(fs, "/none"); err == nil {
		t.Error("Apart of a missing cgroup = nil, want an error")
	}
	if _, err := IsolateOOMKills(fs, "/a/own"); err != nil {
		t.Fatal(err)
	}
	g, err := fs.Group("a/own")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := g.SetOOMGroup(true); err != nil { // by another program
		t.Fatal(err)
	}
	if changed, err := RestoreOOMGroup(g); changed || err != nil {
		t.Errorf("RestoreOOMGroup = %v, %v, want no change of a foreign value", changed, err)
	}
	if notes, err := g.Notes(); len(notes) > 0 || err != nil {
		t.Errorf("notes after the restore = %q, %v, want none", notes, err)
	}
}
