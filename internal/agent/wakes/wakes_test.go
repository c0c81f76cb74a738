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

// newWakes returns Wakes on a node made of files.
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
		n.Reader.UnannouncedPods(read.Index{}, func(string) {}) // finds the existing pods
		w.Tick(now, n.Reader.EachPod)
	}
}

const none = "low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\n"

// Events of a pod count from the beginning of its watch, and only for that pod.
func TestPodAtItsOwnLimit(t *testing.T) {
	n, w, tick := newWakes(t)
	hits := func(text string) { n.Write("cgroup/"+nodetest.Pod+"/memory.events", text) }
	hits(none)
	now := time.Now()
	tick(now)
	if l := w.limits[nodetest.UID]; l == nil || !l.known || l.events.Max != 7 {
		t.Fatalf("limits of the watched pod = %+v, want 7 hits of max", l)
	}
	w.limitHit(now, nodetest.UID)
	if got := w.AtLimit(now); len(got) != 0 {
		t.Errorf("pods at their limit without a hit = %+v", got)
	}
	hits("low 0\nhigh 0\nmax 9\noom 0\noom_kill 0\n")
	w.limitHit(now, nodetest.UID)
	if got := w.AtLimit(now); len(got) != 1 || got[0].Pod.Name != "pod" || !got[0].Since.Equal(now) {
		t.Errorf("pods at their limit = %+v, want one\n%s", got, n.Text())
	}
	if got := w.AtLimit(now.Add(calmAfter + 1)); len(got) != 0 {
		t.Errorf("pods at their limit after calmAfter = %+v, want none", got)
	}
	if w.limits[nodetest.UID].watched || w.watcher.Watches(nodetest.UID, cgroup.ID{}) {
		t.Error("still watched after a hit: a pod that reads files at its limit would wake all the time")
	}
	tick(now)
	if !w.limits[nodetest.UID].watched {
		t.Error("the pod is not watched again after a Tick")
	}
	hits("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\n")
	if w.limitHit(now, nodetest.UID); !strings.Contains(n.Text(), "OOM killer killed process in pod") {
		t.Errorf("an OOM kill is not logged:\n%s", n.Text())
	}
}

// A pod that starts while the agent runs may reach its limit before it is watched: all its events
// are new. For an older pod the time of its events is unknown.
func TestNewPodAtItsOwnLimit(t *testing.T) {
	n, w, tick := newWakes(t)
	n.Write("cgroup/"+nodetest.Pod+"/memory.events", none)
	now := time.Now()
	if tick(now); len(w.AtLimit(now)) != 0 {
		t.Errorf("older pods at their limit = %+v, want none", w.AtLimit(now))
	}
	const later = "11111111-2222-3333-4444-555555555555"
	n.AddPod("kubepods/besteffort/pod"+later, 1)
	n.Write("cgroup/kubepods/besteffort/pod"+later+"/memory.events", none)
	if tick(now.Add(time.Second)); len(w.AtLimit(now)) != 0 {
		t.Error("Tick searches for pods each second without a change")
	}
	w.WatchSoon()
	tick(now.Add(time.Second))
	if got := w.AtLimit(now); len(got) != 1 || got[0].Pod.UID != later || !strings.Contains(n.Text(), "pod at its own memory limit") {
		t.Errorf("new pods at their limit = %+v, want one\n%s", got, n.Text())
	}
}

// A pod that ended is not watched any more.
func TestEndedPodIsNotWatched(t *testing.T) {
	n, w, tick := newWakes(t)
	now := time.Now()
	tick(now)
	if len(w.limits) != 1 {
		t.Fatalf("watched pods = %v, want one", w.limits)
	}
	if err := unix.Rename(n.Dir+"/cgroup/"+nodetest.Pod, n.Dir+"/gone"); err != nil {
		t.Fatal(err)
	}
	if tick(now.Add(watchInterval)); len(w.limits) != 0 {
		t.Errorf("watched pods after the end = %v, want none", w.limits)
	}
}

// A ready file requests a look; an empty slot requests nothing.
func TestResultOfAWake(t *testing.T) {
	_, w, _ := newWakes(t)
	if got := w.OnWake(time.Now()); got != (Result{}) {
		t.Errorf("result without a wake = %+v, want zero", got)
	}
	fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := w.AddFile("burst", fd); err != nil {
		t.Fatal(err)
	}
	for got := (Result{}); !got.Look; { // refusals of the kernel wake, too
		<-w.C()
		if got = w.OnWake(time.Now()); got.Pressed || got.List {
			t.Errorf("result for a ready file = %+v, want only Look", got)
		}
	}
}

// Without kernel wakes nothing is watched, and no wake occurs.
func TestWithoutAKernel(t *testing.T) {
	w := New(Options{})
	if w.C() != nil || len(w.AtLimit(time.Now())) != 0 {
		t.Error("Wakes without a kernel has a channel or pods at their limit")
	}
	w.Tick(time.Now(), func(func(uid, path string)) { t.Error("Tick searches for pods without a kernel") })
}
