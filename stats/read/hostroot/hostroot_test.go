package hostroot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"jettison/stats/read/hosttest"
)

func TestMissingHostRoot(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}

// Paths resolve within the host's root: absolute links start there again, and no path leads
// out.
func TestTheHostsRootIsNotLeft(t *testing.T) {
	root := t.TempDir()
	hosttest.Write(t, 10, root, "data/kubelet/pods/u/etc-hosts")
	hosttest.Write(t, 10, root, "var/x")
	for link, to := range map[string]string{"var/lib": "/data", "up": "../../../../../../../..", "out": "/etc"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	host, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	for _, path := range []string{"/out/passwd", "/up/etc/passwd", "/../../../etc/passwd"} {
		if _, err := host.StatFs(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("opening %s: error %v, want os.ErrNotExist", path, err)
		}
	}
	if fs, err := host.StatNearest("/var/none/at/all"); err != nil || fs.Path != "/var" && fs.Path != "/" {
		t.Errorf("nearest file system of a missing directory = %+v, error %v", fs, err)
	}
	if fs, err := host.StatFs("/up"); err != nil || fs.CapacityBytes.V == 0 {
		t.Errorf("file system of the root = %+v, error %v", fs, err)
	}
}
