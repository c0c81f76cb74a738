package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// testTree creates a cgroup for the test in this machine's hierarchy; a hybrid one is enough.
func testTree(t *testing.T) (fs *FS, name, dir string) {
	t.Helper()
	for _, mount := range []string{DefaultMount, DefaultMount + "/unified"} {
		fs, err := Open(mount)
		if err != nil {
			continue
		}
		name := "jettison-test-" + strconv.Itoa(os.Getpid()) + "-" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
		dir := filepath.Join(mount, name)
		if os.Mkdir(dir, 0o755) == nil {
			t.Cleanup(func() { _ = fs.RemoveEmpty(name); fs.Close() })
			return fs, name, dir
		}
		fs.Close()
	}
	t.Skip("no cgroup v2 hierarchy that this user may write to: the virtual machine's scenarios cover this")
	return nil, "", ""
}

func TestRemoveEmpty(t *testing.T) {
	fs, name, dir := testTree(t)
	if err := os.MkdirAll(dir+"/a/b/c", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := fs.RemoveEmpty("/" + name + "/"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("RemoveEmpty left the cgroup: %v", err)
	}
	if err := fs.RemoveEmpty(name); err != nil {
		t.Errorf("RemoveEmpty of a missing cgroup: error %v, want nil", err)
	}
}

func TestRemoveEmptyKeepsPopulatedCgroup(t *testing.T) {
	fs, name, dir := testTree(t)
	if err := os.MkdirAll(dir+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir + "/a/b")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if err := fs.RemoveEmpty(name); !errors.Is(err, ErrPopulated) {
		t.Errorf("RemoveEmpty of a populated cgroup: error %v, want ErrPopulated", err)
	}
	if _, err := os.Stat(dir + "/a/b"); err != nil {
		t.Error(err)
	}
}

func TestRemoveEmptyStaysInside(t *testing.T) {
	root := t.TempDir()
	fs, err := OpenTree(root)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	if err := os.Symlink("/etc", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "/", "..", "link", "../x"} {
		if err := fs.RemoveEmpty(name); err == nil && name != "../x" {
			t.Errorf("RemoveEmpty of %q outside the tree: no error", name)
		}
	}
}
