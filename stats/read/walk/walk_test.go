package walk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"jettison/stats/read/hosttest"
)

// naive measures a tree with the standard library's walk.
func naive(t testing.TB, dir string) Usage {
	bytes, inodes := hosttest.Naive(t, dir)
	return Usage{Bytes: bytes, Inodes: inodes}
}

func walk(t testing.TB, dir string) (Usage, error) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	return New(hosttest.NoPause).Tree(t.Context(), fd)
}

// grow creates a random tree with files, holes, hard links, symbolic links (to itself, to
// outside) and odd names.
func grow(t testing.TB, r *rand.Rand, dir string, depth int) {
	for i := range r.IntN(8) {
		name := filepath.Join(dir, fmt.Sprintf("%d \n\"%s", i, strings.Repeat("ä", r.IntN(60))))
		var err error
		switch r.IntN(6) {
		case 0:
			if depth > 0 {
				if err = os.Mkdir(name, 0o755); err == nil {
					grow(t, r, name, depth-1)
				}
			}
		case 1:
			err = os.WriteFile(name, make([]byte, r.IntN(20000)), 0o644)
		case 2:
			if err = os.WriteFile(name, []byte("x"), 0o644); err == nil {
				err = os.Truncate(name, 1<<30) // a hole uses no blocks
			}
		case 3:
			if err = os.WriteFile(name, make([]byte, 5000), 0o644); err == nil {
				err = os.Link(name, name+"-again")
			}
		case 4:
			err = os.Symlink(dir, name)
		case 5:
			err = os.Symlink("/usr", name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestATreeIsMeasuredAsTheStandardLibraryWould(t *testing.T) {
	for seed := range uint64(50) {
		dir := t.TempDir()
		grow(t, rand.New(rand.NewPCG(seed, 0)), dir, 4)
		got, err := walk(t, dir)
		if want := naive(t, dir); err != nil || got != want {
			t.Errorf("usage with seed %d = %+v, error %v; want %+v", seed, got, err, want)
		}
	}
}

// A tenant controls the depth of its directories: neither descriptors nor path lengths bound
// the walk.
func TestADeepTreeIsMeasured(t *testing.T) {
	const depth = 3000
	top := t.TempDir()
	hosttest.Chain(t, top, depth)
	got, err := walk(t, top)
	if err != nil || got.Inodes != depth+1 {
		t.Errorf("deep tree has %d inodes, error %v; want %d", got.Inodes, err, depth+1)
	}
	top = t.TempDir()
	hosttest.Chain(t, top, maxLevels)
	before := hosttest.Descriptors(t)
	fd, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := New(hosttest.NoPause)
	w.bounds.Depth = maxLevels
	_, err = w.Tree(t.Context(), fd)
	unix.Close(fd)
	if !errors.Is(err, ErrTooDeep) || hosttest.Descriptors(t) != before {
		t.Errorf("tree deeper than the bound: error %v; %d descriptors before, %d open after the walk", err, before, hosttest.Descriptors(t))
	}
}

// Only the tree's own file system is counted, no mounts inside.
func TestAWalkStaysOnItsFileSystem(t *testing.T) {
	got, err := walk(t, "/proc/self/ns") // links to other file systems
	if err != nil || got.Inodes > 50 {
		t.Errorf("usage of links to other file systems = %+v, error %v", got, err)
	}
	var root, proc unix.Stat_t
	if unix.Stat("/", &root) != nil || unix.Stat("/proc", &proc) != nil || root.Dev == proc.Dev {
		t.Fatal("/proc is not mounted")
	}
	w := New(hosttest.NoPause)
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var u Usage
	l := level{device: root.Dev, fd: fd}
	if err := w.list(t.Context(), &l, &u); err != nil || len(l.below) == 0 || slices.Contains(l.below, "proc") {
		t.Errorf("walk would enter %v, error %v", l.below, err)
	}
}

// A walk ends when its context ends.
func TestAWalkEnds(t *testing.T) {
	dir := t.TempDir()
	for i := range 200 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ctx, cancel := context.WithCancel(t.Context())
	paces := 0
	w := New(func(ctx context.Context) error {
		paces++
		cancel()
		return ctx.Err()
	})
	if _, err := w.Tree(ctx, fd); !errors.Is(err, context.Canceled) || paces != 1 {
		t.Errorf("walk ended after %d paces with error %v", paces, err)
	}
}

// nest creates a chain of directories and returns the lowest; each has another, empty one too.
func nest(t testing.TB, dir string, depth int) string {
	t.Helper()
	for range depth {
		dir = filepath.Join(dir, "d")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for up := dir; filepath.Base(up) == "d"; up = filepath.Dir(up) {
		if err := os.Mkdir(filepath.Join(up, "side"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A tree with directories moved during the walk stays measurable: only entries moved before the
// walk reached them are missing. No descriptor is left open.
func TestTreeWithMoves(t *testing.T) {
	for _, c := range []struct {
		name            string
		depth, moved    int
		always          bool
		atLeast, inodes uint64
	}{
		{"near the top", 50, 20, true, 101, 101},
		{"deep, once", 100, 80, false, 201, 201},
		{"deep, always", 100, 80, true, 201, 201},
	} {
		dir, other := t.TempDir(), t.TempDir()
		nest(t, dir, c.depth)
		name := filepath.Join(dir, strings.Repeat("d/", c.moved))
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		away, moves := false, 0
		move := func() {
			if away = !away; away {
				err = os.Rename(name, filepath.Join(other, "d"))
			} else {
				err = os.Rename(filepath.Join(other, "d"), name)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w := New(nil)
		w.pace = func(context.Context) error {
			if inside := len(w.levels) > c.depth; inside && !away && (c.always || moves == 0) {
				moves++
				move()
			} else if len(w.levels) < c.moved && away {
				move()
			}
			w.entries = 64 // call pace at each entry
			return nil
		}
		w.entries = 64
		before := hosttest.Descriptors(t)
		got, err := w.Tree(t.Context(), fd)
		if err != nil || moves == 0 || got.Partial || got.Inodes < c.atLeast || got.Inodes > c.inodes {
			t.Errorf("%s: usage %+v, error %v after %d moves; want %d to %d inodes", c.name, got, err, moves, c.atLeast, c.inodes)
		}
		if after := hosttest.Descriptors(t); after != before {
			t.Errorf("%s: %d descriptors before, %d open after the walk", c.name, before, after)
		}
		unix.Close(fd)
	}
}

// Siblings of deep directories that are moved during the walk still count.
func TestMovesHideNoSiblings(t *testing.T) {
	const depth, decoys = openAbove + 6, 50
	dir, other := t.TempDir(), t.TempDir()
	parent := filepath.Join(dir, strings.Repeat("d/", depth))
	for i := range decoys {
		hosttest.Write(t, 0, parent, fmt.Sprint("decoy", i), "sub", "f")
	}
	hosttest.Write(t, 8<<20, parent, "big", "f")
	away, moves := false, 0
	move := func(from, to string) {
		away = !away
		moves++
		for i := range decoys {
			if err := os.Rename(filepath.Join(from, fmt.Sprint("decoy", i)), filepath.Join(to, fmt.Sprint("decoy", i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	w := New(nil)
	w.pace = func(context.Context) error {
		if inside := len(w.levels) > depth+2; inside && !away {
			move(parent, other)
		} else if len(w.levels) < depth-2 && away {
			move(other, parent)
		}
		w.entries = 64 // call pace at each entry
		return nil
	}
	w.entries = 64
	if u, err := w.Tree(t.Context(), fd); u.Bytes < 8<<20 || err != nil || moves == 0 {
		t.Errorf("usage with 8 MiB next to a directory moved %d times = %+v, error %v", moves, u, err)
	}
}

// If a directory is moved together with its parent, the rest there is abandoned: the result is
// a lower bound, marked as partial. No descriptor is left open.
func TestMovedParentIsALowerBound(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	nest(t, dir, 100)
	upper := filepath.Join(dir, strings.Repeat("d/", 80))
	lower := filepath.Join(upper, strings.Repeat("d/", 10))
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	away := false
	w := New(nil)
	w.pace = func(context.Context) error {
		var err error
		if n := len(w.levels); n > 100 && !away {
			away, err = true, errors.Join(os.Rename(lower, filepath.Join(other, "lower")), os.Rename(upper, filepath.Join(other, "upper")))
		} else if n < 70 && away {
			away, err = false, errors.Join(os.Rename(filepath.Join(other, "upper"), upper), os.Rename(filepath.Join(other, "lower"), lower))
		}
		w.entries = 64 // call pace at each entry
		return err
	}
	w.entries = 64
	before := hosttest.Descriptors(t)
	if u, err := w.Tree(t.Context(), fd); !u.Partial || err != nil || u.Inodes < 100 || u.Inodes > 201 {
		t.Errorf("usage = %+v, error %v; want a lower bound of 100 to 201 inodes", u, err)
	}
	if after := hosttest.Descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d open after the walk", before, after)
	}
}

// A tenant controls the number of its directories: all are counted once, and few are
// remembered.
func TestManyDirectoriesTakeNoMemory(t *testing.T) {
	const many = 20000
	dir, pad := t.TempDir(), strings.Repeat("x", 200)
	for i := range many {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("%s%d", pad, i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, paces := heap(), uint64(0), 0
	w := New(func(context.Context) error {
		if paces++; paces%20 == 0 {
			most = max(most, heap())
		}
		return nil
	})
	got, err := w.Tree(t.Context(), fd)
	if err != nil || got.Inodes != many+1 || got.Partial {
		t.Errorf("usage of many directories = %+v, error %v; want %d inodes", got, err, many+1)
	}
	if grown := int64(most) - int64(before); grown > 1<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if w.names != 0 || len(w.levels) != 0 {
		t.Errorf("walker still keeps %d names of %d levels", w.names, len(w.levels))
	}
}
