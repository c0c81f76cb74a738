package read

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cri"
)

// layered mounts an overlay, and has a holder know the host.
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

// A container whose layer was mounted since the host's mounts were read last: a file that it has mapped and unlinked at once is found by
// the first look, for a victim is chosen by it.
func TestALayerOfAContainerThatHasJustStarted(t *testing.T) {
	h := newHolder(t, "a")
	var err error
	if h.host, err = OpenHostRoot(""); err != nil {
		t.Fatal(err)
	}
	defer h.host.Close()
	// As of process 1, whose mounts another namespace of this test's might not be.
	h.proc = t.TempDir()
	for name, target := range map[string]string{"1": "/proc/self", fmt.Sprint(os.Getpid()): "/proc/self"} {
		if err := os.Symlink(target, filepath.Join(h.proc, name)); err != nil {
			t.Fatal(err)
		}
	}
	before := h.of("a", unnamed{}).by[h.disk]
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
		if time.Since(h.mounted) > mountsEvery/2 {
			t.Skip("this machine is too slow: the mounts would be read again anyway")
		}
		if got := h.of("a", unnamed{}).by[h.disk]; got.bytes-before.bytes != 6<<20 || got.inodes-before.inodes != 1 {
			t.Errorf("%s: %+v, before it was made %+v", how, got, before)
		}
	}
	counts("open and mapped")
	f.Close()
	h.overlays = map[uint64]string{} // as before it was mounted
	counts("mapped")
	if err := unix.Munmap(area); err != nil {
		t.Error(err)
	}
}

// The same of the layer itself: the runtime is not asked for what the host's mounts tell by now.
func TestALayerThatWasMountedSinceTheMountsWereRead(t *testing.T) {
	root, index := hostWithAPod(t)
	mounts(t, root, "")
	host, err := OpenHostRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	s := &storageWalker{host: host, proc: filepath.Join(root, "proc"), runtime: oneStore(root), w: newWalker(noPause)}
	s.readMounts()
	mounts(t, root, overlay)
	out := s.measure(t.Context(), "uid-1", storageDirs{}, index["uid-1"])
	if u, ok := out.layers["c-app"]; !ok || out.missing || u.UsedBytes < 200000 {
		t.Errorf("%+v, %v", out.layers, out.err)
	}
	exited := &Pod{Exited: []cri.Container{{ID: "c-app"}}}
	mounts(t, root, "")
	s.mounted, s.uppers = time.Time{}, nil
	s.readMounts()
	mounts(t, root, overlay)
	if out := s.measure(t.Context(), "uid-1", storageDirs{}, exited); out.exited["c-app"].UsedBytes < 200000 {
		t.Errorf("exited since: %+v", out.exited)
	}
}
