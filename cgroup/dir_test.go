package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func children(t *testing.T, d *Dir, size int) (names []string) {
	t.Helper()
	if err := d.Children(make([]byte, size), func(name []byte) { names = append(names, string(name)) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// Every listing starts at the first child and includes changes since the previous one.
func TestDirIsListedRepeatedly(t *testing.T) {
	files := map[string]string{"kubepods/file": ""}
	var want []string
	for i := range 300 {
		name := "pod" + strconv.Itoa(i)
		files["kubepods/"+name+"/x"], want = "", append(want, name)
	}
	slices.Sort(want)
	fs := tree(t, files)
	d, err := fs.OpenDir("/kubepods/")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, size := range []int{300, 1024, 1 << 16} {
		if got := children(t, d, size); !slices.Equal(got, want) {
			t.Errorf("listing with a buffer of %d bytes found %d children, want all", size, len(got))
		}
	}
	if err := os.RemoveAll(filepath.Join(fs.Mount(), "kubepods/pod7")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(fs.Mount(), "kubepods/new"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := children(t, d, 4096); len(got) != 300 || !slices.Contains(got, "new") || slices.Contains(got, "pod7") {
		t.Errorf("children after a change = %v", got)
	}
	if err := d.Children(make([]byte, 10), func([]byte) {}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("listing with a buffer too small for an entry: error %v", err)
	}
}

func TestAVanishedDir(t *testing.T) {
	fs := tree(t, map[string]string{"kubepods/x": ""})
	d, err := fs.OpenDir("kubepods")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got := children(t, d, 4096); len(got) != 0 {
		t.Errorf("children before the removal = %v", got)
	}
	if err := os.RemoveAll(filepath.Join(fs.Mount(), "kubepods")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(fs.Mount(), "kubepods/successor"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Children(make([]byte, 4096), func(name []byte) { t.Errorf("removed directory still lists child %q", name) }); !errors.Is(err, ErrVanished) {
		t.Errorf("listing a removed directory: error %v, want ErrVanished", err)
	}
	if _, err := fs.OpenDir("none"); !errors.Is(err, ErrVanished) {
		t.Errorf("opening a removed directory: error %v, want ErrVanished", err)
	}
	if d, err := fs.OpenDir(".."); err == nil {
		d.Close()
		t.Error("opened a directory above the root, want an error")
	}
	d.Close()
	if err := d.Children(make([]byte, 4096), func([]byte) {}); !errors.Is(err, unix.EBADF) {
		t.Errorf("listing after Close: unexpected error %v", err)
	}
}
