package walk

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"jettison/stats/read/hosttest"
)

// walkWithin walks with the given bounds.
func walkWithin(t *testing.T, dir string, within Bounds) (Usage, error) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	w := New(hosttest.NoPause)
	w.bounds = within
	return w.Tree(t.Context(), fd)
}

// A file counts at any depth: below the kept levels, and below the kept places.
func TestFileBelowKeptLevelsCounts(t *testing.T) {
	const depth = maxLevels + 2*maxPlaces
	dir := t.TempDir()
	hosttest.Chain(t, dir, depth)
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < depth && err == nil; i++ {
		var next int
		if next, err = unix.Openat(at, strings.Repeat("d", 200), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(at)
			at = next
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	fd, err := unix.Openat(at, "x", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err == nil {
		err = unix.Fallocate(fd, 0, 0, 256<<20)
		unix.Close(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := hosttest.Descriptors(t)
	u, err := walk(t, dir)
	if err != nil || u.Partial || u.Bytes < 256<<20 || u.Inodes != depth+2 || hosttest.Descriptors(t) != before {
		t.Errorf("%d MiB, %d inodes, partial %v, %v; %d descriptors, before %d", u.Bytes>>20, u.Inodes, u.Partial, err, hosttest.Descriptors(t), before)
	}
}

// Directories walked without a kept path are measured like by the standard library.
func TestTreesBelowKeptLevels(t *testing.T) {
	for seed := range uint64(50) {
		dir := t.TempDir()
		grow(t, rand.New(rand.NewPCG(seed, 0)), dir, 5)
		for _, within := range []Bounds{{1, 2, 100, 64}, {2, 2, 100, 64}, {1, 4, 100, 64}} {
			got, err := walkWithin(t, dir, within)
			if want := naive(t, dir); err != nil || got != want {
				t.Errorf("seed %d, bounds %+v: usage %+v, error %v; want %+v", seed, within, got, err, want)
			}
		}
	}
}

// A directory moved up while the walk is far below it does not lead the walk elsewhere: the
// result is a lower bound.
func TestMovedDeepDirectoryEndsTheWalkBelow(t *testing.T) {
	dir := t.TempDir()
	hosttest.Write(t, 1<<20, dir, "a/b/c/d/e/f", "x")
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, places := range []int{2, 100} {
		w := New(hosttest.NoPause)
		w.bounds = Bounds{1, places, 100, 64}
		d := &deepWalk{Walker: w, fd: -1}
		w.levels = append(w.levels, level{inode: 0})
		var st unix.Stat_t
		if d.fd, err = unix.Openat(fd, "a", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil || unix.Fstat(d.fd, &st) != nil {
			t.Fatal(err)
		}
		d.device, d.here, d.top = st.Dev, st.Ino, st.Ino
		if err := unix.Stat(dir, &st); err != nil {
			t.Fatal(err)
		}
		w.levels[0].inode = st.Ino
		for _, name := range []string{"b", "c", "d"} {
			if err := d.down(name); err != nil {
				t.Fatal(err)
			}
		}
		from, to := filepath.Join(dir, "a/b/c/d"), filepath.Join(dir, "d")
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		if d.up() {
			t.Errorf("with %d places the walk continues at inode %d", places, d.here)
		}
		unix.Close(d.fd)
		if err := os.Rename(to, from); err != nil {
			t.Fatal(err)
		}
	}
}
