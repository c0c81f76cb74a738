package read

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/internal/base/filetest"
	"jettison/internal/base/race"
	"jettison/stats"
	"jettison/stats/read/podindex"
	"jettison/stats/read/procfs"
)

// growing is a Reader with a lister's thread, on a tree of files to which the test adds pods.
// The test can block its kernel calls.
type growing struct {
	*Reader
	t   *testing.T
	dir string
}

func newGrowing(t *testing.T, names ...string) *growing {
	t.Helper()
	g := &growing{t: t, dir: t.TempDir()}
	g.write("cgroup/cgroup.procs", "")
	g.write("cgroup/memory.stat", "anon 0\nfile 0\nshmem 0\ninactive_file 0\n")
	g.write("proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 500000 kB\n")
	for _, name := range names {
		g.pod(name)
	}
	fs, err := cgroup.OpenTree(g.dir + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	proc, err := procfs.Open(g.dir + "/proc")
	if err != nil {
		t.Fatal(err)
	}
	if g.Reader, err = NewReader(fs, proc, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close(); fs.Close(); proc.Close() })
	return g
}

func (g *growing) write(name, text string) {
	g.t.Helper()
	filetest.Write(g.t, filepath.Join(g.dir, name), text)
}

// pod creates a BestEffort pod.
func (g *growing) pod(name string) {
	g.t.Helper()
	for file, text := range map[string]string{
		"cgroup.events": "populated 1\nfrozen 0\n", "cgroup.procs": "7\n", "cgroup.kill": "", "memory.current": "4096\n", "pids.current": "1\n",
		"memory.stat": "anon 4096\nfile 0\nshmem 0\ninactive_file 0\n",
	} {
		g.write("cgroup/kubepods/besteffort/pod"+uid(name)+"/"+file, text)
	}
}

// uid returns a UID that ends in the given letter.
func uid(name string) string { return "12345678-1234-1234-1234-12345678900" + name }

// held blocks calls of the lister until release; entered receives one value per call.
type held struct{ entered, lock chan struct{} }

func newHeld() *held { return &held{make(chan struct{}, 100), make(chan struct{})} }

func (h *held) release() { close(h.lock) }

func (h *held) up() {
	h.entered <- struct{}{}
	<-h.lock
}

// holdUpList blocks every call that lists BestEffort pods.
func (g *growing) holdUpList() *held {
	h, list := newHeld(), g.calls().list
	at := slices.IndexFunc(g.pods.roots, func(r *podRoot) bool { return r.path == "kubepods/besteffort" })
	g.calls().list = func(root int, names []byte) ([]byte, error) {
		if root == at {
			h.up()
		}
		return list(root, names)
	}
	return h
}

func (g *growing) holdUpOpen() *held {
	h, open := newHeld(), g.calls().open
	g.calls().open = func(path string) (*cgroup.Group, error) { h.up(); return open(path) }
	return h
}

func (g *growing) holdUpAsk() *held {
	h, asks := newHeld(), g.calls().checkCritical
	g.calls().checkCritical = func(path string) bool { h.up(); return asks(path) }
	return h
}

func (g *growing) calls() *kernelCalls { return &g.pods.client.lister.calls }

// seen is the result of a quick look: pods found, measured, critical.
type seen struct {
	found, measured, critical string
	took                      time.Duration
	err                       error
}

func (g *growing) look(pods ...string) (out seen) {
	g.t.Helper()
	var l cri.Listing
	for _, name := range pods {
		l.Sandboxes = append(l.Sandboxes, cri.PodSandbox{
			ID: "s" + name, UID: uid(name), Ready: true, CgroupParent: "/kubepods/besteffort/pod" + uid(name),
		})
	}
	index := podindex.New(l)
	var s stats.Summary
	start := time.Now()
	out.err = g.Quick(start, index, &s)
	out.took = time.Since(start)
	for i := range s.Pods {
		p := &s.Pods[i]
		name := p.PodRef.UID[len(p.PodRef.UID)-1:]
		out.found += name
		if p.Memory.UsageBytes.OK {
			out.measured += name
		}
		if p.NodeCritical {
			out.critical += name
		}
	}
	return out
}

// sees fails the test unless a look finds and measures these pods.
func (g *growing) sees(want string) {
	g.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		got := g.look()
		if got.found == want && got.measured == want && got.err == nil {
			return
		}
		if !isLate(got.err) || time.Now().After(end) {
			g.t.Fatalf("look found pods %+v, want %q", got, want)
		}
	}
}

// isLate reports whether the lister answered a look too late: on a busy machine it may not have run.
func isLate(err error) bool { return errors.Is(err, errListLate) || errors.Is(err, errOpenLate) }

// older makes the last list older.
func (g *growing) older(age time.Duration) { g.pods.client.listedAt = g.pods.client.listedAt.Add(-age) }

// waited reports whether the last look waited longer than a short wait, and timed out. It
// counts slices, because this machine may be busy.
func (g *growing) waited() bool { return g.pods.client.slices > minSlices }

// waitedLong reports whether the last look waited as long as one may: on a busy machine, few slices
// take that long.
func (g *growing) waitedLong() bool { return g.waited() || g.pods.client.lookWait >= longWait }

// waitsOnce reports whether consecutive looks wait long for a blocked pod once: on a busy machine the
// first look may also wait for the list, and the second look for the rest of the pod's time.
func (g *growing) waitsOnce(look int) bool {
	switch look {
	case 0:
		return g.waitedLong()
	case 1:
		return g.pods.client.lookWait < longWait
	default:
		return !g.waited()
	}
}

// A directory with a held lock delays a look by only some milliseconds: the previous list
// counts, and the look reports that.
func TestBlockedList(t *testing.T) {
	g := newGrowing(t, "a", "b")
	g.StartLister()
	g.sees("ab")
	h := g.holdUpList()
	g.pod("c")
	for range 3 {
		got := g.look()
		if got.found != "ab" || got.measured != "ab" || !errors.Is(got.err, errListLate) {
			t.Errorf("look with a blocked list = %+v", got)
		}
		if g.waited() {
			t.Errorf("look with a blocked list took %v", got.took)
		}
	}
	if !g.Refresh(nil) {
		t.Error("Refresh does not report that the list is blocked")
	}
	if len(h.entered) != 1 {
		t.Errorf("%d list requests while one was blocked, want 1", len(h.entered))
	}
	h.release()
	g.sees("abc")
	if g.Refresh(nil) {
		t.Error("Refresh reports a block after the release")
	}
}

// If the list is old, a look waits a tenth of a second for a new one, only once a second: then
// it continues with the old list. A permanent block delays neither looks nor Close.
func TestPermanentlyBlockedList(t *testing.T) {
	g := newGrowing(t, "a")
	g.StartLister()
	g.sees("a")
	h := g.holdUpList()
	t.Cleanup(h.release)
	g.older(listValidFor)
	start, waited := time.Now(), 0
	for time.Since(start) < longWaitEvery-longWait {
		got := g.look()
		if got.found != "a" || got.measured != "a" || !errors.Is(got.err, errListLate) {
			t.Fatalf("look with an old, blocked list = %+v", got)
		}
		if g.waitedLong() {
			waited++
		}
	}
	if waited != 1 {
		t.Errorf("%d looks in a second have waited for the list", waited)
	}
	for start = time.Now(); !g.waitedLong(); g.look() {
		if time.Since(start) > 10*time.Second {
			t.Fatal("no look waits again a second later, want one")
		}
	}
	g.Close()
	if took := time.Since(start); took > 9*time.Second {
		t.Errorf("Close with a blocked list took %v", took)
	}
}

// If the list is old, a look waits for a thread that gets CPU time late (a starved node), and
// finds the new pod.
func TestAStarvedLister(t *testing.T) {
	g := newGrowing(t, "a")
	g.StartLister()
	g.sees("a")
	h := g.holdUpList()
	g.older(listValidFor)
	g.pod("b")
	time.AfterFunc(longWait/3, h.release)
	g.sees("ab")
}

// Time during which the loop itself did not run does not count as waiting: the thread did not
// run either.
func TestTimeWithoutSlicesIsNoWaiting(t *testing.T) {
	g := newGrowing(t, "a")
	g.StartLister()
	g.sees("a")
	list := g.calls().list
	g.calls().list = func(root int, names []byte) ([]byte, error) {
		if root == 0 {
			time.Sleep(waitSlice)
		}
		return list(root, names)
	}
	g.pod("b")
	b := g.pods.client
	b.begin(true)
	b.lister.req.list = true
	b.send()
	b.requestWait = time.Hour
	if !b.await(g.pods, shortWait) {
		t.Error("gave up on a thread that had only one slice")
	}
}

// The answer to an old request does not count as new: its list may be just as old.
func TestAStaleAnswer(t *testing.T) {
	g := newGrowing(t, "a")
	g.StartLister()
	g.sees("a")
	h, list, first := newHeld(), g.calls().list, true
	g.calls().list = func(root int, names []byte) ([]byte, error) {
		names, err := list(root, names)
		if first && root == len(g.pods.roots)-1 {
			first = false
			h.up()
		}
		return names, err
	}
	if got := g.look(); got.found != "a" || !errors.Is(got.err, errListLate) {
		t.Fatalf("look after a stale answer = %+v", got)
	}
	asked := time.Now()
	g.pod("b")
	for time.Since(asked) <= freshFor {
		g.look()
	}
	h.release()
	g.sees("ab")
}

// A list is as old as its request: after an old request, a look waits for a new list.
func TestStaleAnswerIsAsOldAsItsRequest(t *testing.T) {
	g := newGrowing(t, "a")
	g.StartLister()
	b := g.pods.client
	g.sees("a")
	b.begin(true)
	asked := time.Now().Add(-time.Minute)
	b.lister.req.list, b.lister.req.sentAt, b.inFlight = true, asked, true
	b.lister.answer()
	b.lister.answers <- struct{}{}
	h := g.holdUpList()
	defer h.release()
	got := g.look()
	if !errors.Is(got.err, errListLate) || !b.listedAt.Equal(asked) || !g.waitedLong() {
		t.Errorf("look after a stale list = %+v, listed %v ago, waited %v", got, time.Since(b.listedAt), b.requestWait)
	}
}

// A look waits for a pod that is not open yet, for a tenth of a second, once.
func TestPodThatIsNotOpenYet(t *testing.T) {
	g := newGrowing(t, "a")
	g.StartLister()
	g.sees("a")
	h := g.holdUpOpen()
	g.pod("b")
	time.AfterFunc(longWait/3, h.release)
	g.sees("ab")

	g = newGrowing(t, "a")
	g.StartLister()
	g.sees("a")
	h = g.holdUpOpen()
	g.pod("b")
	for i := range 3 {
		got := g.look()
		if got.found != "ab" || got.measured != "a" || !errors.Is(got.err, errOpenLate) {
			t.Errorf("look with an unopened pod = %+v", got)
		}
		if !g.waitsOnce(i) {
			t.Errorf("look %d took %v and waited %v", i, got.took, g.pods.client.requestWait)
		}
		if got.critical != "b" {
			t.Errorf("critical pods = %q, want the unopened one among them", got.critical)
		}
	}
	if err := os.RemoveAll(filepath.Join(g.dir, "cgroup/kubepods/besteffort/pod"+uid("b"))); err != nil {
		t.Fatal(err)
	}
	g.pod("c")
	h.release()
	g.sees("ac")
}

// A pod that the runtime has reported counts, whether its directory was listed or not.
func TestLookWaitsForPodKnownToTheRuntimeOnly(t *testing.T) {
	g := newGrowing(t, "a")
	g.StartLister()
	g.sees("a")
	h := g.holdUpList()
	g.pod("b")
	time.AfterFunc(longWait/3, h.release)
	if got := g.look("a", "b"); got.found != "ab" || got.measured != "ab" {
		t.Errorf("look with a pod of the runtime = %+v", got)
	}
}

// A look does not wait for a pod with a cgroup that was removed while the list is blocked.
func TestLookDoesNotWaitForRemovedPod(t *testing.T) {
	g := newGrowing(t, "a", "b")
	g.StartLister()
	g.sees("ab")
	h := g.holdUpList()
	defer h.release()
	k := g.pods.byUID[uid("b")]
	k.close() // as readPod does, for ENODEV
	k.vanished = true
	if got := g.look(); got.measured != "a" || g.waited() {
		t.Errorf("look after the removal = %+v, waited %v", got, g.pods.client.requestWait)
	}
}

// A cgroup created again under the same name between two looks is opened again.
func TestCgroupRecreatedBetweenLooks(t *testing.T) {
	g := newGrowing(t, "a")
	g.StartLister()
	g.sees("a")
	g.pods.byUID[uid("a")].close()
	g.sees("a")
}

// For a pod that the runtime has not reported a look has the processes checked, and waits for
// that; after a timeout the last known result counts.
func TestPodThatIsNotCheckedYet(t *testing.T) {
	for _, adj := range []string{"-997", "0"} {
		g := newGrowing(t, "a")
		g.write("proc/7/oom_score_adj", adj+"\n")
		g.StartLister()
		want := ""
		if adj == "-997" {
			want = "a"
		}
		h := g.holdUpAsk()
		time.AfterFunc(longWait/3, h.release)
		if got := g.look(); got.critical != want || got.err != nil {
			t.Errorf("first look with oom_score_adj %s = %+v", adj, got)
		}
		h = g.holdUpAsk()
		if got := g.look(); got.critical != want || !errors.Is(got.err, errOpenLate) || g.waited() {
			t.Errorf("look with oom_score_adj %s after a check = %+v", adj, got)
		}
		h.release()
	}
	g := newGrowing(t, "a")
	g.write("proc/7/oom_score_adj", "-997\n")
	g.StartLister()
	h := g.holdUpAsk()
	for i := range 3 {
		got := g.look()
		if !g.waitsOnce(i) || got.critical != "" || !errors.Is(got.err, errOpenLate) {
			t.Errorf("look %d with a blocked check = %+v, waited %v", i, got, g.pods.client.requestWait)
		}
	}
	h.release()
	if got := g.look(); got.critical != "a" || got.err != nil {
		t.Errorf("look after the release = %+v", got)
	}
}

// Refresh opens new pods, so that a look has no work left to wait for; Refresh itself does not
// wait long.
func TestRefreshOpensNewPods(t *testing.T) {
	g := newGrowing(t, "a")
	g.StartLister()
	g.pod("b")
	if g.Refresh(nil) {
		t.Fatal("Refresh reports a block, want none")
	}
	list, open := g.holdUpList(), g.holdUpOpen()
	if got := g.look(); got.measured != "ab" || len(open.entered) > 0 {
		t.Errorf("look after Refresh = %+v, %d pods opened", got, len(open.entered))
	}
	g.older(listValidFor)
	if !g.Refresh(nil) || g.waited() {
		t.Errorf("Refresh waited %v for a blocked open", g.pods.client.requestWait)
	}
	list.release()
	open.release()
}

// Close ends the thread, and closes cgroups that it opened meanwhile.
func TestCloseEndsTheLister(t *testing.T) {
	goroutines := goleak.IgnoreCurrent()
	files := openFiles(t)
	g := newGrowing(t, "a")
	g.StartLister()
	g.sees("a")
	h := g.holdUpOpen()
	g.pod("b")
	g.look()
	h.release()
	fs, proc := g.fs, g.proc
	g.Close()
	fs.Close()
	proc.Close()
	goleak.VerifyNone(t, goroutines)
	if now := openFiles(t); now > files {
		t.Errorf("%d descriptors before, %d open after Close", files, now)
	}
}

// A look without new pods allocates nothing, nor does Refresh, and duplicating a pod's cgroup
// looks up no name.
func TestLooksWithAListerDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	g := newGrowing(t, "a", "b")
	g.StartLister()
	g.sees("ab")
	var s stats.Summary
	for err := g.Quick(time.Now(), nil, &s); err != nil; err = g.Quick(time.Now(), nil, &s) {
		if !isLate(err) {
			t.Fatal(err)
		}
	}
	pods := knownPods(s.Pods)
	for name, do := range map[string]func(){
		"view": func() {
			if err := g.view(time.Now(), pods, &s, quick); err != nil && !isLate(err) || len(s.Pods) != 2 {
				t.Error(err, len(s.Pods))
			}
		},
		"Refresh": func() { g.Refresh(pods) },
	} {
		if n := testing.AllocsPerRun(100, do); n != 0 {
			t.Errorf("%s made %v allocations, want 0", name, n)
		}
	}
	if err := os.Rename(filepath.Join(g.dir, "cgroup/kubepods"), filepath.Join(g.dir, "away")); err != nil {
		t.Fatal(err)
	}
	var held cgroup.Group
	if n := testing.AllocsPerRun(10, func() {
		file, ok := g.DupCgroup(&s.Pods[0], &held)
		if !ok || file < 0 {
			t.Fatal("Held found no open cgroup, want one")
		}
		if err := held.WriteKill(file); err != nil {
			t.Error(err)
		}
		held.Close()
		unix.Close(file)
	}); n != 0 {
		t.Errorf("Held made %v allocations, want 0", n)
	}
}

// An error of one root is reported and removes no pod.
func TestRootThatCannotBeListed(t *testing.T) {
	g := newGrowing(t, "a")
	g.StartLister()
	g.sees("a")
	g.calls().list = func(_ int, names []byte) ([]byte, error) { return names, unix.EMFILE }
	if got := g.look(); got.measured != "a" || !errors.Is(got.err, unix.EMFILE) || strings.Contains(got.err.Error(), "no answer") {
		t.Errorf("look with an unreadable root = %+v", got)
	}
}

// The memory of a process in a shared cgroup may take long to read: a look waits a tenth of a second
// for it, then the memory is unknown. The pod is alive.
func TestBlockedProcess(t *testing.T) {
	g := newGrowing(t)
	g.StartLister()
	pid := os.Getpid()
	status := filepath.Join(g.dir, "proc", strconv.Itoa(pid), "status")
	if err := errors.Join(os.MkdirAll(filepath.Dir(status), 0o755), unix.Mkfifo(status, 0o600)); err != nil {
		t.Fatal(err)
	}
	pods := podindex.New(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: uid("a"), Ready: true}}})
	pods[uid("a")].Outside = []stats.OutsideContainer{{ID: "c", Process: stats.ProcessID{PID: pid, Start: 1}}}
	look := func() stats.PodStats {
		t.Helper()
		looked := make(chan stats.PodStats, 1)
		go func() {
			var s stats.Summary
			_ = g.Quick(time.Now(), pods, &s)
			looked <- s.Pods[0]
		}()
		select {
		case p := <-looked:
			return p
		case <-time.After(20 * time.Second):
			t.Fatal("the look waits for the read of a process")
		}
		return stats.PodStats{}
	}
	if p := look(); !p.Populated.V || p.Memory.UsageBytes.OK {
		t.Errorf("while its process cannot be read: populated %v, usage %v, want true and unknown", p.Populated, p.Memory.UsageBytes)
	}
	done := make(chan struct{})
	var feeder sync.WaitGroup
	feeder.Go(func() { // unblocks the reads
		for ; ; time.Sleep(time.Millisecond) {
			select {
			case <-done:
				return
			default:
			}
			if fd, err := unix.Open(status, unix.O_WRONLY|unix.O_NONBLOCK, 0); err == nil {
				_, _ = unix.Write(fd, []byte("RssAnon:\t 1024 kB\nRssShmem:\t 0 kB\n"))
				unix.Close(fd)
			}
		}
	})
	p := look()
	for end := time.Now().Add(20 * time.Second); !p.Memory.UsageBytes.OK && time.Now().Before(end); p = look() {
	}
	if p.Memory.UsageBytes != stats.Some(uint64(1<<20)) {
		t.Errorf("usage of a process that can be read = %v, want 1 MiB", p.Memory.UsageBytes)
	}
	g.processes.close()
	close(done)
	feeder.Wait()
}
