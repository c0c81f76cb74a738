package selfprotect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A command in the agent's container is killed alone; the former value is put back, after a crash too, and not where it has been changed.
func TestAnOOMKillIsOfOneProcess(t *testing.T) {
	fs, _ := tree(t, map[string]string{"a/own/memory.oom.group": "1\n", "b/memory.oom.group": "0\n", "c/cgroup.events": ""})
	is := func(name, want string) {
		t.Helper()
		if b, err := os.ReadFile(filepath.Join(fs.Mount(), name, "memory.oom.group")); err != nil || strings.TrimSpace(string(b)) != want {
			t.Errorf("%s: %q, %v, want %s", name, b, err, want)
		}
	}
	if _, err := unix.Listxattr(fs.Mount(), nil); err != nil {
		t.Skip("no notes here:", err)
	}
	if _, err := Apart(fs, "/a/own"); err != nil { // a crash follows
		t.Fatal(err)
	}
	is("a/own", "0")
	undo, err := Apart(fs, "/a/own")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := undo(); err != nil {
			t.Error(err)
		}
		is("a/own", "1")
	}
	for _, own := range []string{"/", "", "/b", "/c"} { // there is nothing to do
		undo, err := Apart(fs, own)
		if err != nil || undo() != nil {
			t.Errorf("%q: %v", own, err)
		}
	}
	is("b", "0")
	if _, err := Apart(fs, "/none"); err == nil {
		t.Error("a cgroup that is not there, and no error")
	}
	if _, err := Apart(fs, "/a/own"); err != nil {
		t.Fatal(err)
	}
	g, err := fs.Group("a/own")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := g.SetOOMGroup(true); err != nil { // somebody else's
		t.Fatal(err)
	}
	if changed, err := RestoreOOMGroup(g); changed || err != nil {
		t.Errorf("%v, %v", changed, err)
	}
	if notes, err := g.Notes(); len(notes) > 0 || err != nil {
		t.Errorf("%q %v", notes, err)
	}
}
