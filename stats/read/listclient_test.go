package read

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// growing is a Reader with a lister's thread, on a tree of files that can get new pods. Calls of the kernel can be held up.
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

// pod makes a BestEffort one.
func (g *growing) pod(name string) {
	g.t.Helper()
	for file, text := range map[string]string{
		"cgroup.events": "populated 1\nfrozen 0\n", "cgroup.procs": "7\n", "cgroup.kill": "", "memory.current": "4096\n", "pids.current": "1\n",
		"memory.stat": "anon 4096\nfile 0\nshmem 0\ninactive_file 0\n",
	} {
		g.write("cgroup/kubepods/besteffort/pod"+uid(name)+"/"+file, text)
	}
}

// uid is one that ends in a letter of its own.
func uid(name string) string { return "12345678-1234-1234-1234-12345678900" + name }

// held holds up calls of the lister until release; entered tells of each.
type held struct{ entered, lock chan struct{} }

func newHeld() *held { return &held{make(chan struct{}, 100), make(chan struct{})} }

func (h *held) release() { close(h.lock) }

func (h *held) up() {
	h.entered <- struct{}{}
	<-h.lock
}

// holdUp has every call that lists BestEffort pods wait before it does so.
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

// seen is a quick look: who was found, who was measured, who is critical.
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

// sees fails the test unless a look finds and measures these.
func (g *growing) sees(want string) {
	g.t.Helper()
	if got := g.look(); got.found != want || got.measured != want || got.err != nil {
		g.t.Fatalf("%+v, want %q", got, want)
	}
}

// older has what was listed last be older.
func (g *growing) older(age time.Duration) { g.pods.client.listedAt = g.pods.client.listedAt.Add(-age) }

// waited: the last look has waited for longer than one does that is brief, in vain. By turns, for this machine may have others to run.
func (g *growing) waited() bool { return g.pods.client.slices > minSlices }

// A directory whose lock is held keeps no look for more than some milliseconds: what was listed a moment ago counts, and that is said.
func TestAListThatIsHeldUp(t *testing.T) {
	g := newGrowing(t, "a", "b")
	g.Beside()
	g.sees("ab")
	h := g.holdUpList()
	g.pod("c")
	for range 3 {
		got := g.look()
		if got.found != "ab" || got.measured != "ab" || !errors.Is(got.err, errListLate) {
			t.Errorf("%+v", got)
		}
		if g.waited() {
			t.Errorf("a look took %v", got.took)
		}
	}
	if !g.Refresh(nil) {
		t.Error("Refresh does not tell that it is held up")
	}
	if len(h.entered) != 1 {
		t.Errorf("asked %d times while it was held up", len(h.entered))
	}
	h.release()
	g.sees("abc")
	if g.Refresh(nil) {
		t.Error("held up still")
	}
}

// Where what was listed is old a look waits a tenth of a second for the list, and only once a second: then it goes on with what it has. That
// it is held up for good keeps neither looks nor Close.
func TestAListThatIsHeldUpForGood(t *testing.T) {
	g := newGrowing(t, "a")
	g.Beside()
	g.sees("a")
	h := g.holdUpList()
	t.Cleanup(h.release)
	g.older(listValidFor)
	start, waited := time.Now(), 0
	for time.Since(start) < longWaitEvery-longWait {
		got := g.look()
		if got.found != "a" || got.measured != "a" || !errors.Is(got.err, errListLate) {
			t.Fatalf("%+v", got)
		}
		if g.waited() {
			waited++
		}
	}
	if waited != 1 {
		t.Errorf("%d looks in a second have waited for the list", waited)
	}
	for start = time.Now(); !g.waited(); g.look() {
		if time.Since(start) > 10*time.Second {
			t.Fatal("none waits any more, a second later")
		}
	}
	g.Close()
	if took := time.Since(start); took > 9*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// A thread that gets its turn late (a node that is starved) is waited for, where what was listed is old: the new pod counts.
func TestAStarvedLister(t *testing.T) {
	g := newGrowing(t, "a")
	g.Beside()
	g.sees("a")
	h := g.holdUpList()
	g.older(listValidFor)
	g.pod("b")
	time.AfterFunc(longWait/3, h.release)
	g.sees("ab")
}

// Time in which the loop itself had no turn does not count, however long: the CPU was taken away, from the thread as well.
func TestTimeWithoutTurnsIsNoWaiting(t *testing.T) {
	g := newGrowing(t, "a")
	g.Beside()
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
		t.Error("not waited for a thread that had one turn")
	}
}

// An answer that was asked for long ago is not taken for a new one: what it lists may be of then.
func TestAStaleAnswer(t *testing.T) {
	g := newGrowing(t, "a")
	g.Beside()
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
		t.Fatalf("%+v", got)
	}
	asked := time.Now()
	g.pod("b")
	for time.Since(asked) <= freshFor {
		g.look()
	}
	h.release()
	g.sees("ab")
}

// What a stale answer lists counts as of when it was asked for: where that is long ago, a look waits for a new one.
func TestAStaleAnswerIsAsOldAsItsQuestion(t *testing.T) {
	g := newGrowing(t, "a")
	g.Beside()
	b := g.pods.client
	g.sees("a")
	b.begin(true)
	asked := time.Now().Add(-time.Minute)
	b.lister.req.list, b.lister.req.sentAt, b.inFlight = true, asked, true
	b.lister.answer()
	b.lister.answers <- struct{}{}
	h := g.holdUpList()
	defer h.release()
	if got := g.look(); !errors.Is(got.err, errListLate) || !b.listedAt.Equal(asked) || !g.waited() {
		t.Errorf("%+v, listed %v ago, waited %v", got, time.Since(b.listedAt), b.requestWait)
	}
}

// A pod that is there and not open yet is waited for, and for a tenth of a second only: once.
func TestAPodThatIsNotOpenYet(t *testing.T) {
	g := newGrowing(t, "a")
	g.Beside()
	g.sees("a")
	h := g.holdUpOpen()
	g.pod("b")
	time.AfterFunc(longWait/3, h.release)
	g.sees("ab")

	g = newGrowing(t, "a")
	g.Beside()
	g.sees("a")
	h = g.holdUpOpen()
	g.pod("b")
	for i := range 3 {
		got := g.look()
		if got.found != "ab" || got.measured != "a" || !errors.Is(got.err, errOpenLate) {
			t.Errorf("%+v", got)
		}
		if g.waited() != (i == 0) {
			t.Errorf("look %d took %v, waiting %v", i, got.took, g.pods.client.requestWait)
		}
		if got.critical != "b" {
			t.Errorf("critical: %q: of one that is not open nothing is known", got.critical)
		}
	}
	if err := os.RemoveAll(filepath.Join(g.dir, "cgroup/kubepods/besteffort/pod"+uid("b"))); err != nil {
		t.Fatal(err)
	}
	g.pod("c")
	h.release()
	g.sees("ac")
}

// A pod that the runtime has told of is there, whether its directory was listed or not.
func TestAPodThatIsOnlyToldOfIsWaitedFor(t *testing.T) {
	g := newGrowing(t, "a")
	g.Beside()
	g.sees("a")
	h := g.holdUpList()
	g.pod("b")
	time.AfterFunc(longWait/3, h.release)
	if got := g.look("a", "b"); got.found != "ab" || got.measured != "ab" {
		t.Errorf("%+v", got)
	}
}

// One whose cgroup was removed while the list is held up is not waited for.
func TestAPodThatIsGoneIsNotWaitedFor(t *testing.T) {
	g := newGrowing(t, "a", "b")
	g.Beside()
	g.sees("ab")
	h := g.holdUpList()
	defer h.release()
	k := g.pods.byUID[uid("b")]
	k.close() // as readPod does, for ENODEV
	k.vanished = true
	if got := g.look(); got.measured != "a" || g.waited() {
		t.Errorf("%+v, waiting %v", got, g.pods.client.requestWait)
	}
}

// What is made anew under the same name between two looks is opened anew.
func TestACgroupThatIsMadeAnewBesideALook(t *testing.T) {
	g := newGrowing(t, "a")
	g.Beside()
	g.sees("a")
	g.pods.byUID[uid("a")].close()
	g.sees("a")
}

// Of a pod that the runtime has not told of the processes are asked, and waited for; one that was asked in vain counts as what it is known to
// be.
func TestAPodThatIsNotAskedYet(t *testing.T) {
	for _, adj := range []string{"-997", "0"} {
		g := newGrowing(t, "a")
		g.write("proc/7/oom_score_adj", adj+"\n")
		g.Beside()
		want := ""
		if adj == "-997" {
			want = "a"
		}
		h := g.holdUpAsk()
		time.AfterFunc(longWait/3, h.release)
		if got := g.look(); got.critical != want || got.err != nil {
			t.Errorf("%s: %+v", adj, got)
		}
		h = g.holdUpAsk()
		if got := g.look(); got.critical != want || !errors.Is(got.err, errOpenLate) || g.waited() {
			t.Errorf("%s: it was asked before: %+v", adj, got)
		}
		h.release()
	}
	g := newGrowing(t, "a")
	g.write("proc/7/oom_score_adj", "-997\n")
	g.Beside()
	h := g.holdUpAsk()
	for i := range 3 {
		got := g.look()
		if g.waited() != (i == 0) || got.critical != "" || !errors.Is(got.err, errOpenLate) {
			t.Errorf("look %d: %+v, waiting %v", i, got, g.pods.client.requestWait)
		}
	}
	h.release()
	if got := g.look(); got.critical != "a" || got.err != nil {
		t.Errorf("%+v", got)
	}
}

// Refresh opens what is new, so that a look has nothing left to wait for; it has no patience itself.
func TestRefreshOpensWhatIsNew(t *testing.T) {
	g := newGrowing(t, "a")
	g.Beside()
	g.pod("b")
	if g.Refresh(nil) {
		t.Fatal("held up")
	}
	list, open := g.holdUpList(), g.holdUpOpen()
	if got := g.look(); got.measured != "ab" || len(open.entered) > 0 {
		t.Errorf("%+v, %d opened", got, len(open.entered))
	}
	g.older(listValidFor)
	if !g.Refresh(nil) || g.waited() {
		t.Errorf("Refresh waits for %v", g.pods.client.requestWait)
	}
	list.release()
	open.release()
}

// Close ends the thread, and what was opened meanwhile is closed.
func TestCloseEndsTheLister(t *testing.T) {
	goroutines := goleak.IgnoreCurrent()
	files := openFiles(t)
	g := newGrowing(t, "a")
	g.Beside()
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
		t.Errorf("%d descriptors before, %d after", files, now)
	}
}

// A look beside which nothing is new allocates nothing, nor does Refresh, and a second handle of a pod's cgroup looks up no name.
func TestLooksBesideDoNotAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	g := newGrowing(t, "a", "b")
	g.Beside()
	g.sees("ab")
	var s stats.Summary
	if err := g.Quick(time.Now(), nil, &s); err != nil {
		t.Fatal(err)
	}
	pods := knownPods(s.Pods)
	for name, do := range map[string]func(){
		"view": func() {
			if err := g.view(time.Now(), pods, &s, quick); err != nil || len(s.Pods) != 2 {
				t.Error(err, len(s.Pods))
			}
		},
		"Refresh": func() { g.Refresh(pods) },
	} {
		if n := testing.AllocsPerRun(100, do); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if err := os.Rename(filepath.Join(g.dir, "cgroup/kubepods"), filepath.Join(g.dir, "away")); err != nil {
		t.Fatal(err)
	}
	var held cgroup.Group
	if n := testing.AllocsPerRun(10, func() {
		file, ok := g.Held(&s.Pods[0], &held)
		if !ok || file < 0 {
			t.Fatal("the cgroup is open, and is not held")
		}
		if err := held.WriteKill(file); err != nil {
			t.Error(err)
		}
		held.Close()
		unix.Close(file)
	}); n != 0 {
		t.Errorf("%v allocations to hold it", n)
	}
}

// An error of one root is told, and takes no pod away.
func TestARootThatCannotBeListed(t *testing.T) {
	g := newGrowing(t, "a")
	g.Beside()
	g.sees("a")
	g.calls().list = func(_ int, names []byte) ([]byte, error) { return names, unix.EMFILE }
	if got := g.look(); got.measured != "a" || !errors.Is(got.err, unix.EMFILE) || strings.Contains(got.err.Error(), "no answer") {
		t.Errorf("%+v", got)
	}
}
