package openfiles

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/stats/read/walk"
)

// onThread runs f on a thread with its own descriptor table, which the kernel lists after those
// of all earlier calls. It lives until stop.
func onThread(t *testing.T, last *int, stop chan struct{}, f func()) {
	t.Helper()
	for late := false; !late; {
		ready := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if unix.Gettid() == os.Getpid() {
				ready <- nil
				<-stop
				runtime.UnlockOSThread() // the main thread never ends, and would keep its own table
				return
			}
			err := unix.Unshare(unix.CLONE_FILES)
			if late = unix.Gettid() > *last; late { // the kernel lists threads in the order of their creation
				*last = unix.Gettid()
				f()
			}
			ready <- err
			<-stop
		}()
		if err := <-ready; err != nil {
			t.Fatal(err)
		}
	}
}

// With any number of threads that have their own descriptor tables, those of the last one
// count.
func TestEveryThreadsDescriptorsCount(t *testing.T) {
	h := newHolder(t, "a")
	base := h.of("a", Kept{}).byDevice[h.disk]
	stop, last := make(chan struct{}), 0
	defer close(stop)
	for range maxFileSets + 1 {
		onThread(t, &last, stop, func() {})
	}
	onThread(t, &last, stop, func() {
		name := filepath.Join(h.dir, "hidden")
		fd, err := unix.Open(name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err == nil {
			err = unix.Fallocate(fd, 0, 0, 8<<20)
		}
		if err == nil {
			err = unix.Unlink(name)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if got := h.of("a", Kept{}); got.byDevice[h.disk].Bytes < base.Bytes+8<<20 || got.cut {
		t.Errorf("usage with 8 MiB held by the last thread = %+v, cut %v; before %+v", got.byDevice[h.disk], got.cut, base)
	}
	f := h.Finder
	out := Kept{byDevice: map[uint64]walk.Usage{}, holders: map[int]uint64{}}
	f.out = &out
	if more, err := f.process(t.Context(), os.Getpid(), firstRound); !more || err != nil {
		t.Errorf("process with more threads than a first round reads: more %v, error %v", more, err)
	}
}

// Threads that share a descriptor table are read once. If the kernel does not compare, each is
// read.
func TestThreadsThatShareDescriptors(t *testing.T) {
	stop, last, own := make(chan struct{}), 0, 0
	defer close(stop)
	onThread(t, &last, stop, func() { own = unix.Gettid() })
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var sets fileSets
	if _, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(unix.Gettid()), 2, 0, 0, 0); errno != 0 {
		t.Skip("kcmp is not available here: ", errno)
	}
	const gone = 1 << 30 // no thread has this ID: comparing it fails
	for _, c := range []struct {
		tid  int
		want bool
	}{{unix.Gettid(), false}, {unix.Gettid(), true}, {own, false}, {own, true}, {gone, false}} {
		if got := sets.has(c.tid, func(a, b int) (int, bool) { return sameFiles(a, b), true }); got != c.want {
			t.Errorf("thread %d shares a table in %v: %v, want %v", c.tid, sets, got, c.want)
		}
	}
}

const leaderEnds = "JETTISON_TEST_LEADER_ENDS" // names the file that the process maps before its first thread ends

func init() {
	name := os.Getenv(leaderEnds)
	if name == "" {
		return
	}
	runtime.LockOSThread() // init is on the first thread
	go func() {
		f, err := os.Create(name)
		if err == nil {
			err = unix.Fallocate(int(f.Fd()), 0, 0, 8<<20)
		}
		if err == nil {
			_, err = unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
		}
		if err == nil {
			err = os.Remove(name)
		}
		f.Close()
		for ended := false; err == nil && !ended; { // a zombie has no maps
			text, _ := os.ReadFile("/proc/self/maps")
			ended = len(text) == 0
		}
		fmt.Println("ready", err)
		time.Sleep(time.Minute)
		os.Exit(0)
	}()
	debug.SetGCPercent(-1)                         // a collection would wait for this thread for ever
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // this thread's end, not the process'
}

// Mappings of a process count after its first thread has ended: /proc/PID/maps of that one is
// empty.
func TestMappingsCountAfterTheFirstThreadEnded(t *testing.T) {
	h := newHolder(t, "a")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), leaderEnds+"="+filepath.Join(h.dir, "mapped"))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // the error reports the kill
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready <nil>\n" {
		t.Fatal(line, err)
	}
	sum := Kept{byDevice: map[uint64]walk.Usage{}, holders: map[int]uint64{}}
	h.diskSet, h.upper, h.uid, h.out = h.disks(), map[uint64]uint64{}, "a", &sum
	h.searchAll(t.Context(), []int{cmd.Process.Pid})
	if got := sum.byDevice[h.disk]; got.Bytes != 8<<20 || got.Inodes != 1 || sum.cut {
		t.Errorf("usage with 8 MiB mapped = %+v, cut %v", got, sum.cut)
	}
}
