package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A list longer than the buffer is read correctly in pieces of any size.
func TestProcsOfAnyLength(t *testing.T) {
	var want []int
	var text strings.Builder
	for pid := 1; pid < 4_000_000; pid += 1201 {
		want = append(want, pid)
		fmt.Fprintln(&text, pid)
	}
	g := group(t, tree(t, map[string]string{"a/cgroup.procs": text.String()}), "a")
	for _, size := range []int{9, 10, 11, 64, 4096, 1 << 20} {
		var got []int
		if err := g.Procs(make([]byte, size), func(pid int) { got = append(got, pid) }); err != nil || !slices.Equal(got, want) {
			t.Errorf("reading with a buffer of %d bytes: %d of %d processes, error %v", size, len(got), len(want), err)
		}
	}
	for _, size := range []int{0, 1, 3} {
		if err := g.Procs(make([]byte, size), func(int) {}); !errors.Is(err, ErrMalformed) {
			t.Errorf("reading with a buffer of %d bytes: error %v, want ErrMalformed", size, err)
		}
	}
}

func TestProcs(t *testing.T) {
	fs := tree(t, map[string]string{"none/cgroup.procs": "", "open/cgroup.procs": "0\n12", "bad/cgroup.procs": "1\nx\n",
		"gap/cgroup.procs": "1\n\n2\n", "large/cgroup.procs": "2147483648\n"})
	for name, want := range map[string][]int{"none": nil, "open": {0, 12}} {
		var got []int
		if err := group(t, fs, name).Procs(make([]byte, 64), func(pid int) { got = append(got, pid) }); err != nil || !slices.Equal(got, want) {
			t.Errorf("processes of group %s = %v, error %v", name, got, err)
		}
	}
	for _, name := range []string{"bad", "gap", "large"} {
		if err := group(t, fs, name).Procs(make([]byte, 64), func(int) {}); !errors.Is(err, ErrMalformed) {
			t.Errorf("malformed process list %s: error %v, want ErrMalformed", name, err)
		}
	}
	gone := group(t, fs, "none")
	if err := os.RemoveAll(filepath.Join(fs.Mount(), "none")); err != nil {
		t.Fatal(err)
	}
	if err := gone.Procs(make([]byte, 64), func(int) {}); !errors.Is(err, ErrVanished) {
		t.Errorf("processes of a vanished group: error %v, want ErrVanished", err)
	}
}
