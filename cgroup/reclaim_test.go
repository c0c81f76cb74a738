package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseReclaimStat(t *testing.T) {
	for name, text := range recorded(t, "memory.stat") {
		var s ReclaimStat
		if err := ParseReclaimStat(text, &s); err != nil || !s.HasRefaults || s.ActiveAnon+s.InactiveAnon+s.ActiveFile+s.InactiveFile == 0 && strings.HasSuffix(name, "cgroup/memory.stat") {
			t.Errorf("parsing the recorded %s = %+v, error %v", name, s, err)
		}
	}
	const lists = "inactive_anon 1\nactive_anon 2\ninactive_file 3\nactive_file 4\n"
	for text, want := range map[string]ReclaimStat{
		lists: {1, 2, 3, 4, 0, 0, false},
		lists + "workingset_refault_anon 5\nworkingset_refault_file 6\n": {1, 2, 3, 4, 5, 6, true},
		lists + "workingset_refault_anon 5\n":                            {1, 2, 3, 4, 5, 0, false},
		"other 9\n\nword\n" + lists:                                      {1, 2, 3, 4, 0, 0, false},
	} {
		var s ReclaimStat
		if err := ParseReclaimStat([]byte(text), &s); err != nil || s != want {
			t.Errorf("ParseReclaimStat of %q = %+v, error %v, want %+v", text, s, err, want)
		}
	}
	for _, text := range []string{"", "inactive_anon 1\n", strings.Replace(lists, " 3", "", 1), strings.Replace(lists, " 3", " -3", 1), strings.Replace(lists, " 4", " 18446744073709551616", 1)} {
		s := ReclaimStat{InactiveAnon: 7}
		if err := ParseReclaimStat([]byte(text), &s); !errors.Is(err, ErrMalformed) || s != (ReclaimStat{}) {
			t.Errorf("ParseReclaimStat of malformed %q = %+v, error %v, want ErrMalformed", text, s, err)
		}
	}
}

func FuzzParseReclaimStat(f *testing.F) {
	seed(f, "memory.stat")
	f.Fuzz(func(t *testing.T, b []byte) {
		var s ReclaimStat
		err := ParseReclaimStat(b, &s)
		checkMalformed(t, err)
		want, ok := naive(b, false, "inactive_anon", "active_anon", "inactive_file", "active_file")
		// Refaults may be absent, but not malformed.
		for _, key := range []string{"workingset_refault_anon", "workingset_refault_file"} {
			_, fine := naive(b, false, key)
			_, bad := naiveLine(b, key)
			ok = ok && (fine || !bad)
		}
		if ok != (err == nil) || ok && (s.InactiveAnon != want["inactive_anon"] || s.ActiveAnon != want["active_anon"] || s.InactiveFile != want["inactive_file"] || s.ActiveFile != want["active_file"]) {
			t.Errorf("got %+v, %v; the naive parser returned %v, %v", s, err, want, ok)
		}
	})
}

// naiveLine finds the line of a key.
func naiveLine(b []byte, key string) (string, bool) {
	for line := range strings.SplitSeq(string(b), "\n") {
		if k, value, _ := strings.Cut(line, " "); k == key {
			return value, true
		}
	}
	return "", false
}

// Reclaim writes the expected text, as far as a plain file can show.
func TestReclaimWrites(t *testing.T) {
	fs := tree(t, map[string]string{"pod/cgroup.procs": "", "pod/memory.reclaim": "", "old/cgroup.procs": ""})
	r, err := group(t, fs, "pod").OpenReclaim()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, s := range []Swappiness{SwappinessFile, SwappinessAnon} {
		if err := r.Reclaim(4096, s); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(fs.Mount(), "pod/memory.reclaim"))
	if want := "4096 swappiness=04096 swappiness=200"; err != nil || string(text) != want || r.noSwappiness {
		t.Errorf("Reclaim wrote %q (error %v, no swappiness %v), want %q", text, err, r.noSwappiness, want)
	}
	if _, err := group(t, fs, "old").OpenReclaim(); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrVanished) {
		t.Errorf("OpenReclaim on a kernel without the file: error %v", err)
	}
	r.Close()
	r.Close()
	if err := r.Reclaim(1, SwappinessFile); !errors.Is(err, unix.EBADF) {
		t.Errorf("Reclaim after Close: error %v", err)
	}
}

// The kernel's errors, from files that return the same ones.
func TestReclaimAnswers(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	r := &Reclaimer{path: "/pod/memory.reclaim", fd: pipe[1], buf: make([]byte, 0, 64)}
	defer r.Close()
	for _, err := unix.Write(pipe[1], make([]byte, 4096)); err == nil; {
		_, err = unix.Write(pipe[1], make([]byte, 4096))
	}
	if err := r.Reclaim(1<<20, SwappinessAnon); !errors.Is(err, ErrNothingLeft) || err.Error() != "reclaim 1048576 bytes by cgroup /pod/memory.reclaim: nothing left to reclaim" {
		t.Errorf("Reclaim on EAGAIN returned %v, want ErrNothingLeft", err)
	}
	// An eventfd accepts eight bytes and no fewer: a short write is EINVAL, like a key that the
	// kernel does not know.
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	old := &Reclaimer{path: "/pod/memory.reclaim", fd: fd, buf: make([]byte, 0, 64)}
	defer old.Close()
	old.noSwappiness = true
	if err := old.Reclaim(1, SwappinessFile); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Reclaim on EINVAL without a swappiness returned %v", err)
	}
}

// Reclaim of a group without reclaimable memory returns and does not block.
func TestLiveReclaim(t *testing.T) {
	fs, g := live(t)
	r, err := g.OpenReclaim()
	if err != nil {
		t.Skip("no memory.reclaim here, the virtual machine's run of this test covers it (make e2e RUN=LiveTests): ", err)
	}
	defer r.Close()
	dir, err := os.Open(filepath.Join(fs.Mount(), g.path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("dd", "of=/dev/null") // waits for its input
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err = r.Reclaim(64<<20, SwappinessAnon)
	t.Logf("64 MiB of a process that sleeps, anonymous memory first: %v after %v, plain %v", err, time.Since(began), r.noSwappiness)
	if !errors.Is(err, ErrNothingLeft) || !strings.Contains(err.Error(), g.path+"/memory.reclaim") {
		t.Errorf("Reclaim of an empty group: error %v, want ErrNothingLeft with the file", err)
	}
	_ = input.Close()
	_ = cmd.Wait()
	if err := g.WaitEmpty(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	err = r.Reclaim(64<<20, SwappinessFile)
	t.Logf("an empty group, page cache: %v after %v", err, time.Since(began))
	if err := unix.Rmdir(filepath.Join(fs.Mount(), g.path)); err != nil {
		t.Fatal(err)
	}
	if err := r.Reclaim(4096, SwappinessFile); !errors.Is(err, ErrVanished) {
		t.Errorf("Reclaim of a removed group: error %v, want ErrVanished", err)
	}
	if _, err := g.OpenReclaim(); !errors.Is(err, ErrVanished) {
		t.Errorf("OpenReclaim of a removed group: error %v, want ErrVanished", err)
	}
}

// Reclaim frees page cache, and the lists of memory.stat show it.
func TestLiveReclaimPageCache(t *testing.T) {
	fs, g := live(t)
	r, err := g.OpenReclaim()
	if err != nil {
		t.Skip("no memory.reclaim here, the virtual machine's run of this test covers it (make e2e RUN=LiveTests): ", err)
	}
	defer r.Close()
	const size = 32 << 20
	folder, err := os.MkdirTemp(".", "cold") // not /tmp, which may be memory
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "cold")
	dir, err := os.Open(filepath.Join(fs.Mount(), g.path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("dd", "if=/dev/zero", "of="+file, "bs=1048576", fmt.Sprintf("count=%d", size>>20))
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("filling the page cache failed: %v: %s", err, out)
	}
	unix.Sync() // dirty pages are not reclaimed
	before := cacheOf(t, g, func(bytes uint64) bool { return bytes >= size })
	began := time.Now()
	for range 4 {
		if err := r.Reclaim(4<<20, SwappinessFile); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(began)
	after := cacheOf(t, g, func(bytes uint64) bool { return bytes <= before-12<<20 })
	t.Logf("16 MiB of %d in %v: %d left", before, took, after)
}

// cacheOf returns the page cache of a group in bytes, once it is in the expected range: the
// kernel sums its per-CPU counters when they are large, or after 2 s (v6.12 mm/memcontrol.c
// memcg_vmstats_needs_flush, flush_memcg_stats_dwork).
func cacheOf(t *testing.T, g *Group, wanted func(bytes uint64) bool) uint64 {
	t.Helper()
	buf := make([]byte, 8192)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var s ReclaimStat
		if err := g.ReclaimStat(buf, &s); err != nil {
			t.Fatal(err)
		}
		if bytes := s.InactiveFile + s.ActiveFile; wanted(bytes) {
			return bytes
		} else if time.Now().After(deadline) {
			t.Fatalf("page cache never reached the expected range: %+v", s)
		}
	}
}
