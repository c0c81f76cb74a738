package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// On a real kernel, every kept descriptor and the directory of a removed group return
// ErrVanished.
func TestLiveFilesOfAVanishedGroup(t *testing.T) {
	fs, g := live(t)
	dir, err := fs.OpenDir(g.path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	buf, opened := make([]byte, 8192), 0
	for name, from := range readers {
		switch v, err := from(g, buf); {
		case err == nil:
			opened++
		case !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrVanished):
			t.Errorf("reading %s before the removal: %v, error %v", name, v, err)
		}
	}
	if opened < 3 { // cgroup.events, cgroup.stat and cpu.stat need no controller
		t.Errorf("only %d kept files could be opened", opened)
	}
	if err := dir.Children(buf, func(name []byte) { t.Errorf("group lists unexpected child %q", name) }); err != nil {
		t.Errorf("listing the group failed: %v", err)
	}
	if err := unix.Rmdir(filepath.Join(fs.Mount(), g.path)); err != nil {
		t.Fatal(err)
	}
	for name, from := range readers {
		if v, err := from(g, buf); !errors.Is(err, ErrVanished) {
			t.Errorf("%s: %v, %v, want ErrVanished", name, v, err)
		}
	}
	if err := dir.Children(buf, func([]byte) {}); !errors.Is(err, ErrVanished) {
		t.Errorf("list: %v, want ErrVanished", err)
	}
	if err := g.Procs(buf, func(int) {}); !errors.Is(err, ErrVanished) {
		t.Errorf("procs: %v, want ErrVanished", err)
	}
}

// A kept descriptor of a removed file also returns ENODEV, but the group still exists: the file
// is missing.
func TestLiveKeptFileIsSwitchedOff(t *testing.T) {
	_, g := live(t)
	buf := make([]byte, 1024)
	if _, err := pressure(g, Memory, buf); err != nil {
		t.Skip("no pressure on this kernel, the virtual machine's run of this test covers it (make e2e RUN=LiveTests): ", err)
	}
	if err := g.write("cgroup.pressure", "0"); err != nil {
		t.Skip("cgroup.pressure is newer than this kernel, the virtual machine's run of this test covers it (make e2e RUN=LiveTests): ", err)
	}
	if _, err := pressure(g, Memory, buf); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrVanished) {
		t.Errorf("pressure switched off: error %v, want os.ErrNotExist", err)
	}
	if err := g.write("cgroup.pressure", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := pressure(g, Memory, buf); err != nil {
		t.Errorf("pressure switched on again: error %v", err)
	}
}

// The kernel returns a whole file by one pread, or fills the buffer: readRecord relies on it.
func TestLiveFilesAreOneRecord(t *testing.T) {
	_, g := live(t)
	for _, name := range []string{"cgroup.stat", "cgroup.events", "cpu.stat", "cgroup.controllers"} {
		whole, err := g.read(name, make([]byte, 8192))
		if err != nil {
			t.Fatal(err)
		}
		fd, err := g.openFile(name, unix.O_RDONLY)
		if err != nil {
			t.Fatal(err)
		}
		n, err := unix.Pread(fd, make([]byte, 16), int64(len(whole)))
		unix.Close(fd)
		if n != 0 || err != nil {
			t.Errorf("%s: %d bytes after a short read, %v", name, n, err)
		}
		if b, err := g.read(name, make([]byte, len(whole))); len(whole) > 0 && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: a buffer that it fills: %q, %v", name, b, err)
		}
	}
}

func TestLiveProbe(t *testing.T) {
	fs, _ := live(t)
	f := NewFeatures(fs, "/proc", "/sys")
	for _, feature := range f.Probe() {
		t.Logf("%s: %v %s", feature.Name, feature.Answer, feature.Detail)
		if slices.Contains([]string{"cgroup.kill", "swap", "memory_recursiveprot"}, feature.Name) && feature.Answer == Unknown {
			t.Errorf("feature %s is No or Unknown on this node: %s", feature.Name, feature.Detail)
		}
		if feature.Answer == Unknown && feature.Detail == "" {
			t.Errorf("%s: unknown for no reason", feature.Name)
		}
	}
}
