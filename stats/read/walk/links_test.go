package walk

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"jettison/stats/read/hosttest"
)

// Hard links count once, also with more such inodes than the walk remembers: otherwise a tenant
// with many names of a large file controls its own usage, and shrinks it while the disk fills.
func TestManyHardLinksCountOnce(t *testing.T) {
	dir := t.TempDir()
	for i := range 60 {
		name := filepath.Join(dir, fmt.Sprint("file", i))
		hosttest.Write(t, 4096*(i%5), name)
		for j := range i % 7 { // three names, and other counts that do not divide evenly
			if err := os.Link(name, filepath.Join(dir, fmt.Sprint("link", i, "-", j))); err != nil {
				t.Fatal(err)
			}
		}
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	want := naive(t, dir)
	for _, room := range []int{0, 1, 17, 1000} {
		w := New(hosttest.NoPause)
		w.linkRoom = room
		for range 2 { // no state remains from the previous walk
			if u, err := w.Tree(t.Context(), fd); err != nil || u != want {
				t.Errorf("usage with room for %d links = %+v, want %+v; error %v", room, u, want, err)
			}
		}
		if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
			t.Fatal(err)
		}
		if u, _, err := w.Own(t.Context(), fd); err != nil || u != want {
			t.Errorf("own usage with room for %d links = %+v, want %+v; error %v", room, u, want, err)
		}
	}
}
