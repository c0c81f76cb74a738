package openfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"jettison/seqfile/seqtest"
	"jettison/stats/read/hosttest"
)

// looksAt looks at a process as pod a; files on the file system of /dev/shm count.
func looksAt(t *testing.T, pid string) Kept {
	h := newHolder(t, "a")
	var st unix.Stat_t
	if err := unix.Stat("/dev/shm", &st); err != nil {
		t.Fatal(err)
	}
	h.disk = st.Dev
	h.Finder.disks = func() map[uint64]bool { return map[uint64]bool{st.Dev: true} }
	if err := os.WriteFile(filepath.Join(h.tree, "kubepods/burstable/poda/c/cgroup.procs"), []byte(pid+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got := h.of("a", Kept{})
	fmt.Printf("said: %d of %d bytes, cut %v\n", got.byDevice[h.disk].Inodes, got.byDevice[h.disk].Bytes, got.cut)
	return got
}

// A pod may map a file so deep that the kernel needs 64 MiB for its line in maps: the look that
// counts it does not use that memory.
func TestAFileThatIsMappedVeryFarDownCostsTheReaderNoMemory(t *testing.T) {
	if pid, ok := seqtest.Inside(t); ok {
		looksAt(t, pid)
		return
	}
	dir := seqtest.Deep(t)
	fd, err := unix.Openat(dir, "x", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.Fallocate(fd, 0, 0, 1<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	area, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	unix.Close(fd)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unlinkat(dir, "x", 0); err != nil {
		t.Fatal(err)
	}
	out, peak := hosttest.Survives(t, seqtest.Within, fmt.Sprint(os.Getpid()))
	if out != "1 of 1048576 bytes, cut false" || peak > 32<<20 {
		t.Errorf("look at a deep mapped file: %s, peak memory %.1f MiB", out, float64(peak)/(1<<20))
	}
	if err := unix.Munmap(area); err != nil {
		t.Error(err)
	}
}

// A process with a very deep mount in its own namespace is searched as far as possible, and the
// result is a lower bound.
func TestAMountThatIsVeryFarDownDoesNotEndTheReader(t *testing.T) {
	if pid, ok := seqtest.Inside(t); ok {
		looksAt(t, pid)
		return
	}
	seqtest.Mounted(t)
	if out, _ := hosttest.Survives(t, seqtest.WithinProtected, fmt.Sprint(os.Getpid())); !strings.HasSuffix(out, "cut true") {
		t.Error("look at a deep mount did not report a lower bound: ", out)
	}
}
