package openfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/stats/read/hostroot"
	"jettison/stats/read/mounts"
)

// layered mounts an overlay, and shows the host's mounts to the holder.
func (h *holder) layered() (merged string) {
	h.t.Helper()
	root := h.t.TempDir()
	for _, dir := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
	merged = filepath.Join(root, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", root)
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		h.t.Skip("cannot mount an overlay here: ", err)
	}
	h.t.Cleanup(func() {
		if err := unix.Unmount(merged, unix.MNT_DETACH); err != nil {
			h.t.Error(err)
		}
	})
	return merged
}

// A container's layer was mounted after the last reading of the host's mounts: the first look
// finds a file that the container mapped and unlinked immediately, because the choice of a
// victim uses it.
func TestLayerOfAStartingContainer(t *testing.T) {
	h := newHolder(t, "a")
	var err error
	if h.host, err = hostroot.Open(""); err != nil {
		t.Fatal(err)
	}
	defer h.host.Close()
	// From process 1: another namespace of this test may have other mounts.
	h.proc = t.TempDir()
	for name, target := range map[string]string{"1": "/proc/self", fmt.Sprint(os.Getpid()): "/proc/self"} {
		if err := os.Symlink(target, filepath.Join(h.proc, name)); err != nil {
			t.Fatal(err)
		}
	}
	before := h.of("a", Kept{}).byDevice[h.disk]
	merged := h.layered()
	f, err := os.Create(filepath.Join(merged, "x"))
	if err == nil {
		err = errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, 6<<20), os.Remove(f.Name()))
	}
	if err != nil {
		t.Fatal(err)
	}
	area, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	counts := func(how string) {
		t.Helper()
		if time.Since(h.mounted) > mounts.Every/2 {
			t.Skip("this machine is too slow: the mounts would be read again anyway")
		}
		if got := h.of("a", Kept{}).byDevice[h.disk]; got.Bytes-before.Bytes != 6<<20 || got.Inodes-before.Inodes != 1 {
			t.Errorf("file in a new layer kept by %s: usage %+v, before %+v", how, got, before)
		}
	}
	counts("open and mapped")
	f.Close()
	h.overlays = map[uint64]string{} // the state before the mount
	counts("mapped")
	if err := unix.Munmap(area); err != nil {
		t.Error(err)
	}
}
