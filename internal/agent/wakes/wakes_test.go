package wakes

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/internal/node/nodetest"
	"jettison/stats"
	"jettison/stats/read"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newWakes watches a node of files.
func newWakes(t *testing.T) (*nodetest.Node, *Wakes, func(now time.Time)) {
	t.Helper()
	n := nodetest.New(t)
	pods := n.Runs()
	w := New(Options{
		FS: n.FS, ProcMount: n.Proc(), Log: n.Log,
		Ref: func(p stats.PodReference) stats.PodReference {
			if known := pods[p.UID]; known != nil {
				return known.PodRef
			}
			return p
		},
		Name: func(p stats.PodReference) string { return "uid:" + p.UID },
	})
	t.Cleanup(w.Start())
	return n, w, func(now time.Time) {
		n.Reader.Strangers(read.Index{}, func(string) {}) // finds the pods that are there
		w.Tick(now, n.Reader.EachPod)
	}
}

const none = "low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\n"

// Events of a pod are counted from when its watch began, and are that pod's alone.
func TestAPodAtItsOwnLimitIsNamed(t *testing.T) {
	n, w, tick := newWakes(t)
	hits := func(text string) { n.Write("cgroup/"+nodetest.Pod+"/memory.events", text) }
	hits(none)
	now := time.Now()
	tick(now)
	if l := w.limits[nodetest.UID]; l == nil || !l.known || l.events.Max != 7 {
		t.Fatalf("watched: %+v", l)
	}
	w.limitHit(now, nodetest.UID)
	if got := w.AtLimit(now); len(got) != 0 {
		t.Errorf("at its limit without a hit: %+v", got)
	}
	hits("low 0\nhigh 0\nmax 9\noom 0\noom_kill 0\n")
	w.limitHit(now, nodetest.UID)
	if got := w.AtLimit(now); len(got) != 1 || got[0].Pod.Name != "pod" || !got[0].Since.Equal(now) {
		t.Errorf("at its limit: %+v\n%s", got, n.Text())
	}
	if got := w.AtLimit(now.Add(calmAfter + 1)); len(got) != 0 {
		t.Errorf("for ever: %+v", got)
	}
	if w.limits[nodetest.UID].watched || w.watcher.Watches(nodetest.UID, cgroup.ID{}) {
		t.Error("told again at once: a pod that reads files at its limit would wake all the time")
	}
	tick(now)
	if !w.limits[nodetest.UID].watched {
		t.Error("not watched again")
	}
	hits("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\n")
	if w.limitHit(now, nodetest.UID); !strings.Contains(n.Text(), "OOM killer has killed in a pod") {
		t.Errorf("an OOM kill is not said:\n%s", n.Text())
	}
}

// A pod that comes while the agent runs may be at its limit before it is watched: all of its events are news. Of one that was there before
// it is not known when they were.
func TestANewPodAtItsOwnLimitIsNamed(t *testing.T) {
	n, w, tick := newWakes(t)
	n.Write("cgroup/"+nodetest.Pod+"/memory.events", none)
	now := time.Now()
	if tick(now); len(w.AtLimit(now)) != 0 {
		t.Errorf("there before: %+v", w.AtLimit(now))
	}
	const later = "11111111-2222-3333-4444-555555555555"
	n.AddPod("kubepods/besteffort/pod"+later, 1)
	n.Write("cgroup/kubepods/besteffort/pod"+later+"/memory.events", none)
	if tick(now.Add(time.Second)); len(w.AtLimit(now)) != 0 {
		t.Error("it is looked for each second, although nothing is new")
	}
	w.Anew()
	tick(now.Add(time.Second))
	if got := w.AtLimit(now); len(got) != 1 || got[0].Pod.UID != later || !strings.Contains(n.Text(), "no reason to evict another") {
		t.Errorf("new: %+v\n%s", got, n.Text())
	}
}

// A pod that is gone is watched no more.
func TestAPodThatIsGone(t *testing.T) {
	n, w, tick := newWakes(t)
	now := time.Now()
	tick(now)
	if len(w.limits) != 1 {
		t.Fatalf("watched: %v", w.limits)
	}
	if err := unix.Rename(n.Dir+"/cgroup/"+nodetest.Pod, n.Dir+"/gone"); err != nil {
		t.Fatal(err)
	}
	if tick(now.Add(watchEvery)); len(w.limits) != 0 {
		t.Errorf("watched: %v", w.limits)
	}
}

// What a wake asks for: a file that is ready asks for a look, and an empty slot for nothing.
func TestWhatAWakeAsksFor(t *testing.T) {
	_, w, _ := newWakes(t)
	if got := w.OnWake(time.Now()); got != (Woken{}) {
		t.Errorf("without a wake: %+v", got)
	}
	fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := w.AddFile("burst", fd); err != nil {
		t.Fatal(err)
	}
	for got := (Woken{}); !got.Look; { // what the kernel refuses here wakes, too
		<-w.C()
		if got = w.OnWake(time.Now()); got.Pressed || got.List {
			t.Errorf("a file that is ready: %+v", got)
		}
	}
}

// An agent that the kernel does not wake watches nothing, and nothing comes.
func TestWithoutAKernel(t *testing.T) {
	w := New(Options{})
	if w.C() != nil || len(w.AtLimit(time.Now())) != 0 {
		t.Error("a wake out of nothing")
	}
	w.Tick(time.Now(), func(func(uid, path string)) { t.Error("pods are looked for") })
}
