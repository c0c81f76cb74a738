package squeeze

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/internal/base/filetest"
	"jettison/reclaim"
	"jettison/stats"
)

// TestMain also runs the process that holds memory in a pod: see holder.
func TestMain(m *testing.M) {
	if size := os.Getenv(holdVariable); size != "" {
		hold(size)
	}
	goleak.VerifyTestMain(m)
}

const mib = 1 << 20

// fake is a hierarchy of plain files.
type fake struct {
	t   testing.TB
	dir string
}

func newFake(t testing.TB) *fake {
	f := &fake{t, t.TempDir()}
	for _, path := range []string{"kubepods", "kubepods/besteffort", "kubepods/burstable"} {
		f.group(path, 1000*mib, 0, 0)
	}
	return f
}

func (f *fake) write(name, text string) {
	f.t.Helper()
	filetest.Write(f.t, filepath.Join(f.dir, name), text)
}

// group creates a cgroup with the given memory, all of it on these inactive lists.
func (f *fake) group(path string, current, anon, file int) {
	for name, text := range map[string]string{
		"cgroup.procs": "", "memory.current": fmt.Sprintln(current), "memory.min": "0\n", "memory.low": "0\n", "memory.swap.max": "max\n", "memory.swap.current": "0\n", "memory.reclaim": "",
		"memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"memory.stat":     fmt.Sprintf("inactive_anon %d\nactive_anon 0\ninactive_file %d\nactive_file 0\nworkingset_refault_anon 10\nworkingset_refault_file 10\n", anon, file),
	} {
		f.write(path+"/"+name, text)
	}
}

func (f *fake) asked(path string) string {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, path, "memory.reclaim"))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

func (f *fake) start(watch time.Duration) *Worker {
	f.t.Helper()
	fs, err := cgroup.OpenTree(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	s := Start(Options{FS: fs, SysMount: f.dir, Watch: watch})
	f.t.Cleanup(func() {
		if err := s.Close(time.Minute); err != nil {
			f.t.Error(err)
		}
	})
	return s
}

// request returns a request for anonymous memory.
func request(bytes uint64) Request {
	return Request{MemoryTarget: reclaim.MemoryTarget{Bytes: bytes, Time: time.Hour, Rate: 1 << 40}, Signal: stats.SignalMemoryAvailable,
		Before: stats.Some[uint64](100 * mib), Fill: 10 * mib, SwapFree: stats.Some[uint64](1 << 30)}
}

func try(t testing.TB, s *Worker, r Request) {
	t.Helper()
	if !s.Try(r) {
		t.Fatal("the worker is busy")
	}
}

// The bubble's clock does not advance while files are read and written: a chunk takes no time, so
// the next one is larger.
func TestColdestPodsAreAskedInChunks(t *testing.T) { synctest.Test(t, coldestPodsAreAskedInChunks) }

func coldestPodsAreAskedInChunks(t *testing.T) {
	f := newFake(t)
	f.group("kubepods/besteffort/podcold", 100*mib, 5*mib+4096, 0)
	f.group("kubepods/besteffort/podself", 100*mib, 90*mib, 0)
	f.group("kubepods/besteffort/podspared", 100*mib, 90*mib, 0)
	f.group("kubepods/burstable/podlow", 100*mib, 90*mib, 0)
	f.write("kubepods/burstable/podlow/memory.low", "max\n")
	f.group("kubepods/burstable/podwarm", 100*mib, 20*mib, 0)
	f.write("kubepods/burstable/podwarm/memory.min", fmt.Sprintln(88*mib))
	f.group("kubepods/podsure", 100*mib, 90*mib, 0)
	s := f.start(time.Millisecond)
	r := request(100 * mib)
	r.Exempt, r.Self = map[string]bool{"spared": true}, "kubepods/besteffort/podself/container"
	try(t, s, r)
	e := <-s.Effects()
	if e.Final || e.Err != nil || e.Why != "" || e.Bytes != 17*mib+4096 || e.Asked != e.Bytes || e.Stopped || len(e.Pods) != 2 || e.Pods[0].UID != "cold" || e.Pods[1].Bytes != 12*mib {
		t.Errorf("first effect = %+v, want 17 MiB and 4 KiB of cold and warm", e)
	}
	if e.Before.V != 100*mib || !e.Freed.OK || e.Freed.V != 0 {
		t.Errorf("first effect = %+v, want 100 MiB before and nothing freed", e)
	}
	final := <-s.Effects()
	if !final.Final || final.Refaulted != stats.Some[uint64](0) || final.Asked != e.Asked {
		t.Errorf("final effect = %+v, want no refaults", final)
	}
	if got, want := f.asked("kubepods/besteffort/podcold"), "1048576 swappiness=2002097152 swappiness=2002101248 swappiness=200"; got != want {
		t.Errorf("chunks %q, want %q", got, want)
	}
	for _, spared := range []string{"kubepods/besteffort/podself", "kubepods/besteffort/podspared", "kubepods/burstable/podlow", "kubepods/podsure", "kubepods", "kubepods/burstable"} {
		if got := f.asked(spared); got != "" {
			t.Errorf("memory.reclaim of %s = %q, want no write", spared, got)
		}
	}
}

func TestPageCache(t *testing.T) {
	f := newFake(t)
	f.group("kubepods/besteffort/podcold", 100*mib, 0, 20*mib)
	s := f.start(time.Millisecond)
	r := request(16 * mib)
	r.Kind, r.SwapFree = reclaim.PageCache, stats.Some[uint64](0)
	try(t, s, r)
	if e := <-s.Effects(); e.Asked != 16*mib || e.Took <= 0 || e.Fell != uint64(r.Fill*e.Took.Seconds()) {
		t.Errorf("effect of a page cache reclaim = %+v", e)
	}
	<-s.Effects()
	if got := f.asked("kubepods/besteffort/podcold"); !strings.HasPrefix(got, "1048576 swappiness=0") {
		t.Errorf("memory.reclaim = %q, want swappiness 0", got)
	}
}

// Refaults after the reclaim are counted, except of a pod that ended meanwhile.
func TestRefaults(t *testing.T) { synctest.Test(t, refaults) }

func refaults(t *testing.T) {
	f := newFake(t)
	f.group("kubepods/besteffort/poda", 100*mib, 20*mib, 0)
	f.group("kubepods/besteffort/podb", 100*mib, 20*mib, 0)
	s := f.start(300 * time.Millisecond)
	try(t, s, request(40*mib))
	if e := <-s.Effects(); e.Final || e.Asked != 40*mib {
		t.Fatalf("first effect = %+v, want 40 MiB requested", e)
	}
	if s.Try(request(1)) {
		t.Error("a second reclaim began while the pods of the first are watched")
	}
	f.write("kubepods/besteffort/poda/memory.stat", "inactive_anon 0\nactive_anon 0\ninactive_file 0\nactive_file 0\nworkingset_refault_anon 110\nworkingset_refault_file 15\n")
	if err := os.RemoveAll(filepath.Join(f.dir, "kubepods/besteffort/podb")); err != nil {
		t.Fatal(err)
	}
	if e := <-s.Effects(); !e.Final || e.Refaulted != stats.Some(uint64(105*os.Getpagesize())) {
		t.Errorf("final effect = %+v, want 105 refaulted pages", e)
	}
	try(t, s, request(1)) // the next reclaim may begin
	<-s.Effects()
}

// pipe replaces a file by a pipe, to which writes can block.
func (f *fake) pipe(name string) (fd int) {
	path := filepath.Join(f.dir, name)
	err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600))
	if err != nil {
		f.t.Fatal(err)
	}
	if fd, err = unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// Stop does not wait for a reclaim that blocks in the kernel, and no further chunk follows.
func TestStopDoesNotWait(t *testing.T) {
	f := newFake(t)
	f.group("kubepods/besteffort/podcold", 100*mib, 90*mib, 0)
	pipe := f.pipe("kubepods/besteffort/podcold/memory.reclaim")
	for full := make([]byte, 4096); ; { // until a write to it blocks
		if _, err := unix.Write(pipe, full); err == unix.EAGAIN {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	s := f.start(time.Millisecond)
	r := request(90 * mib)
	r.Time = time.Hour
	try(t, s, r)
	s.Stop()
	if err := s.Close(time.Millisecond); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // the look may not be finished
		t.Error(err)
	}
	if s.Try(r) {
		t.Error("a closed Worker begins a reclaim")
	}
	for buf := make([]byte, 1<<16); ; {
		if _, err := unix.Read(pipe, buf); err == unix.EAGAIN {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// The pipe has one page with room for one more write: the second one blocks until the pipe is read.
func TestStopBetweenChunks(t *testing.T) { synctest.Test(t, stopBetweenChunks) }

func stopBetweenChunks(t *testing.T) {
	f := newFake(t)
	f.group("kubepods/besteffort/podcold", 600*mib, 590*mib, 0)
	pipe := f.pipe("kubepods/besteffort/podcold/memory.reclaim")
	size, err := unix.FcntlInt(uintptr(pipe), unix.F_SETPIPE_SZ, 4096)
	if err != nil {
		t.Fatal(err)
	}
	room := len("1048576 swappiness=200")
	if _, err := unix.Write(pipe, make([]byte, size-room)); err != nil {
		t.Fatal(err)
	}
	s := f.start(time.Millisecond)
	r := request(512 * mib)
	r.Time = time.Hour
	try(t, s, r)
	for held := 0; held < size; runtime.Gosched() { // until the first chunk was written
		if held, err = unix.IoctlGetInt(pipe, unix.TIOCINQ); err != nil {
			t.Fatal(err)
		}
	}
	f.write("kubepods/besteffort/podcold/memory.current", "0\n") // the pod is killed: its death frees more than was requested
	s.Stop()
	if _, err := unix.Read(pipe, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if e := <-s.Effects(); !e.Stopped || e.Freed != stats.Some(e.Asked) || e.Bytes != 512*mib || e.Asked != 1*mib && e.Asked != 3*mib || len(e.Pods) != 1 || e.Pods[0].Bytes != e.Asked {
		t.Errorf("effect of a stopped reclaim = %+v", e)
	}
	if e := <-s.Effects(); !e.Final || !e.Stopped {
		t.Errorf("final effect of a stopped reclaim = %+v", e)
	}
}

// The time limit of a reclaim includes the look.
func TestTimeLimitIncludesTheLook(t *testing.T) {
	f := newFake(t)
	f.group("kubepods/besteffort/podcold", 100*mib, 90*mib, 0)
	s := f.start(time.Millisecond)
	r := request(90 * mib)
	r.Time = 0
	try(t, s, r)
	if e := <-s.Effects(); !e.Final || e.Asked != 0 || !strings.Contains(e.Why, "too fast") {
		t.Errorf("effect without time = %+v, want nothing requested", e)
	}
}

// A malformed pod affects no other pod and causes no crash.
func TestHostileCgroups(t *testing.T) {
	f := newFake(t)
	f.group("kubepods/besteffort/podcold", 100*mib, 20*mib, 0)
	f.group("kubepods/besteffort/podmalformed", 100*mib, 20*mib, 0)
	f.write("kubepods/besteffort/podmalformed/memory.stat", "inactive_anon many\n")
	f.group("kubepods/besteffort/podshort", 100*mib, 20*mib, 0)
	f.write("kubepods/besteffort/podshort/memory.low", "\n")
	f.write("kubepods/besteffort/podempty/cgroup.procs", "")
	f.write("kubepods/besteffort/notapod/cgroup.procs", "")
	if err := os.Symlink(f.dir, filepath.Join(f.dir, "kubepods/besteffort/podlink")); err != nil {
		t.Fatal(err)
	}
	s := f.start(time.Millisecond)
	try(t, s, request(100*mib))
	if e := <-s.Effects(); e.Err != nil || len(e.Pods) != 1 || e.Asked != 20*mib {
		t.Errorf("effect next to malformed pods = %+v, want 20 MiB of one pod", e)
	}
	<-s.Effects()
	f.write("kubepods/besteffort/podcold/memory.stat", "?")
	try(t, s, request(100*mib))
	if e := <-s.Effects(); len(e.Pods) != 0 || !e.Final || e.Why == "" {
		t.Errorf("effect with malformed pods only = %+v, want none", e)
	}
	f.group("kubepods/besteffort/podcold", 100*mib, 20*mib, 0)
	if err := os.Remove(filepath.Join(f.dir, "kubepods/besteffort/podcold/memory.reclaim")); err != nil {
		t.Fatal(err)
	}
	try(t, s, request(100*mib))
	if e := <-s.Effects(); !errors.Is(e.Err, ErrNoReclaim) || !e.Final || e.Asked != 0 {
		t.Errorf("effect without memory.reclaim = %+v, want ErrNoReclaim", e)
	}
}

func TestNoPods(t *testing.T) {
	s := (&fake{t, t.TempDir()}).start(time.Millisecond)
	try(t, s, request(100*mib))
	if e := <-s.Effects(); e.Err != nil || !e.Final || e.Why == "" {
		t.Errorf("effect without pods = %+v, want a final one with a reason", e)
	}
}

func TestCloseTwice(t *testing.T) {
	f := newFake(t)
	f.group("kubepods/besteffort/podcold", 100*mib, 90*mib, 0)
	s := f.start(time.Hour)
	try(t, s, request(90*mib)) // its effects are not received
	for range 2 {
		if err := s.Close(time.Minute); err != nil {
			t.Error(err)
		}
	}
}

func TestGenerations(t *testing.T) {
	for text, want := range map[string]bool{"0x0007\n": true, "0x0000\n": false, "0x0006\n": false, "1": true, "": false, "y\n": false} {
		f := &fake{t, t.TempDir()}
		f.write("kernel/mm/lru_gen/enabled", text)
		if got := generations(f.dir); got != want {
			t.Errorf("generations with switch %q = %v, want %v", text, got, want)
		}
	}
	if generations(t.TempDir()) {
		t.Error("generations without the switch = true, want false")
	}
}
