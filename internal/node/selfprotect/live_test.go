package selfprotect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"jettison/cgroup"
)

func live(t *testing.T) (*cgroup.FS, string) {
	t.Helper()
	if os.Getenv("JETTISON_LIVE") == "" {
		t.Skip("takes a node to try things on: make e2e RUN=LiveTests")
	}
	fs, err := cgroup.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	top := filepath.Join(fs.Mount(), "jettison-live-protect")
	for _, dir := range []string{top, top + "/pod", top + "/pod/own"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if err := os.WriteFile(filepath.Dir(dir)+"/cgroup.subtree_control", []byte("+memory"), 0); err != nil {
			t.Fatal(err)
		}
	}
	return fs, top
}

// The former values are restored, also after a crash of an earlier run, except where another program has changed them.
func TestLiveMemoryMin(t *testing.T) {
	fs, top := live(t)
	min := func(dir, want string) {
		t.Helper()
		b, err := os.ReadFile(top + dir + "/memory.min")
		if err != nil || strings.TrimSpace(string(b)) != want {
			t.Errorf("%s: memory.min %q, want %s, %v", dir, b, want, err)
		}
	}
	write := func(dir, value string) {
		t.Helper()
		if err := os.WriteFile(top+dir+"/memory.min", []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	write("", "1048576")
	own := "/jettison-live-protect/pod/own"
	if _, refused := Memory(fs, own, true); len(refused) > 0 { // a crash follows
		t.Fatal(refused)
	}
	min("/pod/own", "50331648")
	min("/pod", "50331648")
	min("", "51380224")
	undo, refused := Memory(fs, own, true)
	if len(refused) > 0 {
		t.Fatal(refused)
	}
	min("", "51380224")
	write("/pod", "4096")
	if err := undo(); err != nil {
		t.Error(err)
	}
	min("/pod/own", "0")
	min("/pod", "4096")
	min("", "1048576")
	undo, refused = Memory(fs, own, false)
	if len(refused) > 0 {
		t.Fatal(refused)
	}
	min("/pod", "4096")
	min("/pod/own", "50331648")
	if err := undo(); err != nil {
		t.Error(err)
	}
	min("/pod/own", "0")
}
