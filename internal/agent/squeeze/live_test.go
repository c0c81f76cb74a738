package squeeze

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/reclaim"
	"jettison/stats"
)

// holdVariable makes this test binary hold the given bytes of anonymous memory, which it touches
// once.
const holdVariable = "JETTISON_HOLD"

// hold never returns. A quarter of each page cannot be compressed. For each byte of its input it
// reads all its memory again.
func hold(size string) {
	n, err := strconv.Atoi(size)
	if err != nil {
		panic(err)
	}
	memory, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	_ = unix.Madvise(memory, unix.MADV_NOHUGEPAGE)
	var random [1024]byte
	for i := 0; i < n; i += 4096 {
		_, _ = rand.Read(random[:])
		copy(memory[i:], random[:])
	}
	fmt.Println("holds")
	sum := byte(0)
	for one := (make([]byte, 1)); ; {
		if _, err := os.Stdin.Read(one); err != nil {
			os.Exit(0)
		}
		for i := 0; i < n; i += 4096 {
			sum += memory[i]
		}
		fmt.Println("touched", sum)
	}
}

// holder is a pod with a process that holds memory.
type holder struct {
	*cgroup.Group
	t      *testing.T
	stdin  io.Writer
	stdout io.Reader
}

// kill kills all processes of a group, as the agent does.
func kill(g *cgroup.Group) error {
	fd, err := g.OpenKill()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return g.WriteKill(fd)
}

// expect waits for a line of the process.
func (h *holder) expect(word string) {
	h.t.Helper()
	var line [32]byte
	if n, err := h.stdout.Read(line[:]); err != nil || !strings.HasPrefix(string(line[:n]), word) {
		h.t.Fatalf("process printed %q (%v), want %s", line[:n], err, word)
	}
}

// touch makes the process read all its memory again.
func (h *holder) touch() {
	h.t.Helper()
	if _, err := h.stdin.Write([]byte{1}); err != nil {
		h.t.Fatal(err)
	}
	h.expect("touched")
}

// site is a separate kubepods in the real hierarchy.
type site struct {
	t    *testing.T
	fs   *cgroup.FS
	root string // cgroupRoot
}

func newSite(t *testing.T) *site {
	t.Helper()
	if os.Getenv("JETTISON_LIVE") == "" {
		t.Skip("changes the node's swap: runs in the virtual machine")
	}
	fs, err := cgroup.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	s := &site{t: t, fs: fs, root: "jettison-test-" + strconv.Itoa(os.Getpid())}
	for _, path := range []string{s.root, s.root + "/kubepods", s.root + "/kubepods/besteffort"} {
		s.mkdir(path)
		if err := os.WriteFile(filepath.Join(fs.Mount(), path, "cgroup.subtree_control"), []byte("+memory"), 0); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *site) mkdir(path string) {
	s.t.Helper()
	dir := filepath.Join(s.fs.Mount(), path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			s.t.Error(dir, err)
		}
	})
}

// pod starts a process that holds memory in its own pod, and waits until it holds it.
func (s *site) pod(uid string, size int) *holder {
	s.t.Helper()
	path := s.root + "/kubepods/besteffort/pod" + uid
	s.mkdir(path)
	g, err := s.fs.Group(path)
	if err != nil {
		s.t.Fatal(err)
	}
	dir, err := os.Open(filepath.Join(s.fs.Mount(), path))
	if err != nil {
		s.t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holdVariable+"="+strconv.Itoa(size))
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = stdin.Close()
		_ = kill(g)
		_ = cmd.Wait()
		if err := g.WaitEmpty(context.Background(), time.Minute); err != nil {
			s.t.Error(err)
		}
		g.Close()
	})
	h := &holder{Group: g, t: s.t, stdin: stdin, stdout: stdout}
	h.expect("holds")
	return h
}

// zram adds swap in compressed memory to the node until the test ends.
func zram(t *testing.T, size int) {
	t.Helper()
	const device, sys = "/dev/zram0", "/sys/block/zram0/"
	if err := os.WriteFile(sys+"disksize", []byte(strconv.Itoa(size)), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(sys+"reset", []byte("1"), 0); err != nil {
			t.Error(err)
		}
	})
	// The header that mkswap writes (v6.12 include/linux/swap.h, union swap_header).
	page := make([]byte, os.Getpagesize())
	binary.LittleEndian.PutUint32(page[1024:], 1)
	binary.LittleEndian.PutUint32(page[1028:], uint32(size/len(page)-1))
	copy(page[len(page)-10:], "SWAPSPACE2")
	if err := os.WriteFile(device, page, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.BytePtrFromString(device)
	if err != nil {
		t.Fatal(err)
	}
	if err := swap(unix.SYS_SWAPON, name); err != nil {
		t.Fatal("swapon of the zram device failed: ", err)
	}
	t.Cleanup(func() {
		if err := swap(unix.SYS_SWAPOFF, name); err != nil {
			t.Error("swapoff of the zram device failed: ", err)
		}
	})
}

// used returns the amount that the kubelet's formula subtracts from the capacity.
func used(t *testing.T, fs *cgroup.FS) int64 {
	t.Helper()
	g, err := fs.Group("")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var s cgroup.MemoryStat
	if err := g.MemoryStat(make([]byte, 16<<10), &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Anon + s.File - s.InactiveFile)
}

func (s *site) start(watch time.Duration) *Worker {
	s.t.Helper()
	fs, err := cgroup.Open("")
	if err != nil {
		s.t.Fatal(err)
	}
	q := Start(Options{FS: fs, CgroupRoot: "/" + s.root, Watch: watch})
	s.t.Cleanup(func() {
		if err := q.Close(time.Minute); err != nil {
			s.t.Error(err)
		}
	})
	return q
}

func stalled(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/pressure/memory")
	if err != nil {
		return 0
	}
	var psi cgroup.PSIStats
	if err := cgroup.ParsePSI(text, &psi); err != nil {
		t.Fatal(err)
	}
	return psi.Some.Total
}

// With swap in compressed memory a sleeping pod's memory is reclaimed: the signal rises, nothing is
// read in again, and the governor finds it effective.
func TestLiveSwapGivesMemoryBack(t *testing.T) {
	s := newSite(t)
	zram(t, 256*mib)
	g := s.pod("sleeper", 96*mib)
	q := s.start(time.Second)
	buf := make([]byte, 16<<10)
	var lists cgroup.ReclaimStat
	if err := g.ReclaimStat(buf, &lists); err != nil {
		t.Fatal(err)
	}
	t.Logf("before: %+v, generations %v", lists, generations("/sys"))
	r := request(40 * mib)
	r.Time, r.Fill = 2*time.Second, 0
	usedBefore, stalledBefore := used(t, s.fs), stalled(t)
	r.Before = stats.Some(uint64(1 << 40))
	try(t, q, r)
	e := <-q.Effects()
	gain := usedBefore - used(t, s.fs)
	t.Logf("some of the node stalled for %v of it", stalled(t)-stalledBefore)
	swapped, err := g.MemorySwapCurrent(buf)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("asked for %d MiB, freed %d MiB in %v, gain %d MiB, swapped %d MiB: %+v", e.Asked/mib, e.Freed.V/mib, e.Took, gain/mib, swapped/mib, e)
	if e.Err != nil || e.Asked < 16*mib || e.Freed.V < e.Asked/2 || swapped < e.Asked/2 || gain < int64(e.Asked/2) {
		t.Errorf("effect of the reclaim = %+v", e)
	}
	e = <-q.Effects()
	e.After = stats.Some(e.Before.V + uint64(max(gain, 0)))
	var governor reclaim.MemoryGovernor
	if v := governor.Judge(time.Now(), &e); !v.Worthwhile {
		t.Errorf("verdict %+v on effect %+v, want effective", v, e)
	}
	t.Logf("read in again: %+v", e.Refaulted)
	if err := g.ReclaimStat(buf, &lists); err != nil {
		t.Fatal(err)
	}
	t.Logf("after: %+v", lists)
}

// Memory that is read in again immediately was not cold: the governor stops the reclaim.
func TestLiveWhatIsReadInAgainDoesNotPay(t *testing.T) {
	s := newSite(t)
	zram(t, 256*mib)
	busy := s.pod("busy", 96*mib)
	q := s.start(2 * time.Second)
	var governor reclaim.MemoryGovernor
	for tries := 1; ; tries++ {
		ok, why := governor.Allows(time.Now(), reclaim.Anonymous)
		if !ok {
			t.Logf("after %d tries: %s", tries-1, why)
			return
		}
		if tries > 3 {
			t.Fatal("the governor still allows the reclaim after 3 tries")
		}
		r := request(40 * mib)
		r.Time, r.Fill = 2*time.Second, 0
		before := used(t, s.fs)
		r.Before = stats.Some(uint64(1 << 40))
		try(t, q, r)
		e := <-q.Effects()
		after := stats.Some(uint64(int64(1<<40) + before - used(t, s.fs)))
		busy.touch()
		e = <-q.Effects()
		e.After = after
		v := governor.Judge(time.Now(), &e)
		t.Logf("%+v: freed %d MiB, read in again %d MiB", v, e.Freed.V/mib, e.Refaulted.V/mib)
	}
}

// Without swap only page cache can be reclaimed, which raises no signal: the governor stops it.
func TestLiveWithoutSwapItTurnsItselfOff(t *testing.T) {
	s := newSite(t)
	s.pod("sleeper", 32*mib)
	// The pod's page cache.
	dir, err := os.Open(filepath.Join(s.fs.Mount(), s.root, "kubepods/besteffort/podsleeper"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	folder, err := os.MkdirTemp(".", "cache") // not /tmp, which may be memory
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "cache")
	cmd := exec.Command("dd", "if=/dev/zero", "of="+file, "bs=1048576", "count=64")
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("dd in the pod's cgroup failed: %v: %s", err, out)
	}
	unix.Sync()
	q := s.start(time.Millisecond)
	var governor reclaim.MemoryGovernor
	for try := 1; ; try++ {
		kind, known := reclaim.MemoryKindFor(stats.Some[uint64](0), 0)
		ok, why := governor.Allows(time.Now(), kind)
		if kind != reclaim.PageCache || !known || try > 3 {
			t.Fatalf("kind of memory = %v, known %v, want page cache, try %d", kind, known, try)
		}
		if !ok {
			t.Logf("after %d tries: %s", try-1, why)
			return
		}
		r := request(16 * mib)
		r.Kind, r.SwapFree, r.Time, r.Fill = kind, stats.Some[uint64](0), 2*time.Second, 0
		before := used(t, s.fs)
		r.Before = stats.Some(uint64(1 << 40))
		if !q.Try(r) {
			t.Fatal("the worker is busy before a try")
		}
		e := <-q.Effects()
		gain := before - used(t, s.fs)
		t.Logf("asked for %d MiB, freed %d MiB in %v, gain %d KiB: %+v", e.Asked/mib, e.Freed.V/mib, e.Took, gain>>10, e)
		if e.Asked < 8*mib || e.Freed.V < e.Asked/2 {
			t.Fatalf("effect of a page cache reclaim = %+v", e)
		}
		e = <-q.Effects()
		e.After = stats.Some(uint64(int64(e.Before.V) + gain))
		governor.Judge(time.Now(), &e)
	}
}

// A kill succeeds while memory is being reclaimed, also of the same pod, and Stop takes effect
// after a chunk.
func TestLiveKillsDoNotWait(t *testing.T) {
	s := newSite(t)
	zram(t, 384*mib)
	sleeper := s.pod("sleeper", 160*mib)
	other := s.pod("other", 160*mib)
	q := s.start(time.Millisecond)
	r := request(256 * mib)
	r.Time, r.Fill = 2*time.Second, 0
	killed := func(i int) time.Duration {
		path := s.root + "/kubepods/victim" + strconv.Itoa(i)
		s.mkdir(path)
		g, err := s.fs.Group(path)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		began := time.Now()
		if err := kill(g); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		if err := unix.Rmdir(filepath.Join(s.fs.Mount(), path)); err != nil {
			t.Fatal(err)
		}
		return took
	}
	var idle, during []time.Duration
	for i := range 20 {
		idle = append(idle, killed(i))
	}
	try(t, q, r)
	for i := range 20 {
		during = append(during, killed(100+i))
	}
	began := time.Now()
	q.Stop()
	called := time.Since(began)
	e := <-q.Effects()
	ended := time.Since(began)
	if e.Asked > 0 {
		<-q.Effects()
	}
	dies := func(g *holder) time.Duration {
		began := time.Now()
		if err := errors.Join(kill(g.Group), g.WaitEmpty(t.Context(), time.Minute)); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	r.Exempt = map[string]bool{"other": true}
	try(t, q, r)
	q.Stop() // as the agent does
	asked := dies(sleeper)
	again := <-q.Effects()
	if again.Asked > 0 {
		<-q.Effects()
	}
	t.Logf("160 MiB from kill to empty: %v while asked (for %d MiB), %v while nobody is", asked, again.Asked/mib, dies(other))
	slices.Sort(idle)
	slices.Sort(during)
	t.Logf("kill written: idle p50 %v max %v, while reclaiming p50 %v max %v; Stop took %v, the last chunk ended %v after it; %+v", idle[10], idle[19], during[10], during[19], called, ended, e)
	if called > 100*time.Millisecond || ended > 2*time.Second {
		t.Errorf("Stop returned after %v and took effect after %v", called, ended)
	}
}
