package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/cri/nri"
)

// However many events come at once, looks are as far apart as ever. What comes after the burst is seen, too.
func TestABurstOfEventsCostsABoundedNumberOfLooks(t *testing.T) {
	n := newTestNode(t)
	n.runs()
	n.a.o.ProcMount = n.dir + "/proc"
	stop := n.a.startWatch()
	defer stop()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := n.a.kernel.AddFile("burst", fd); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { n.a.loop(ctx); close(ended) }()
	first, err := n.a.State(ctx)
	if err != nil { // the loop runs
		t.Fatal(err)
	}
	const events = 10_000
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	start := time.Now()
	for i := range events {
		for time.Since(start) < time.Duration(i)*10*time.Microsecond { // a tenth of a second in all, fifty times as long as between two looks
		}
		if _, err := unix.Write(fd, one); err != nil {
			t.Fatal(err)
		}
	}
	after, err := n.a.State(ctx)
	if err != nil {
		t.Fatal(err)
	}
	looks, took := after.Looks-first.Looks, time.Since(first.Time) // the loop looks by itself, too, before the burst and after it
	if most := uint64(took/soonest) + 3; looks > most {            // one at the start, one for the first event, one for the last
		t.Errorf("%d looks for %d events in %v, want at most %d", looks, events, took, most)
	}
	t.Logf("%d looks in %v", looks, took)
	before := after.Looks
	if _, err := unix.Write(fd, one); err != nil {
		t.Fatal(err)
	}
	for after.Looks == before { // a look follows well before the next one that is due by itself
		if after, err = n.a.State(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	<-ended
}

// Events of a pod are counted from when its watch began, and are that pod's alone.
func TestAPodAtItsOwnLimitIsNamed(t *testing.T) {
	n := newTestNode(t)
	n.runs()
	pod := "kubepods/besteffort/pod" + uid
	hits := func(text string) { n.write("cgroup/"+pod+"/memory.events", text) }
	hits("low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\n")
	stop := n.a.startWatch()
	defer stop()
	n.a.Reader.Strangers(n.a.pods, func(string) {})
	now := time.Now()
	n.a.watchCgroups(now)
	if l := n.a.limits[uid]; l == nil || !l.known || l.events.Max != 7 {
		t.Fatalf("watched: %+v", l)
	}
	n.a.limitHit(now, uid)
	if got := n.a.atOwnLimit(now); len(got) != 0 {
		t.Errorf("at its limit without a hit: %+v", got)
	}
	hits("low 0\nhigh 0\nmax 9\noom 0\noom_kill 0\n")
	n.a.limitHit(now, uid)
	if got := n.a.atOwnLimit(now); len(got) != 1 || got[0].Pod.Name != "pod" || !got[0].Since.Equal(now) {
		t.Errorf("at its limit: %+v\n%s", got, n.log)
	}
	if got := n.a.atOwnLimit(now.Add(calmAfter + 1)); len(got) != 0 {
		t.Errorf("for ever: %+v", got)
	}
	if n.a.limits[uid].watched || n.a.kernel.Watches(uid, cgroup.ID{}) {
		t.Error("told again at once: a pod that reads files at its limit would wake all the time")
	}
	n.a.watchCgroups(now)
	if !n.a.limits[uid].watched {
		t.Error("not watched again")
	}
}

// A pod that comes while the agent runs may be at its limit before it is watched: all of its events are news. Of one that was there before
// nobody knows when they were.
func TestANewPodAtItsOwnLimitIsNamed(t *testing.T) {
	n := newTestNode(t)
	n.runs()
	const later = "11111111-2222-3333-4444-555555555555"
	n.write("cgroup/kubepods/besteffort/pod"+uid+"/memory.events", "low 0\nhigh 0\nmax 7\noom 0\noom_kill 0\n")
	stop := n.a.startWatch()
	defer stop()
	now := time.Now()
	look := func() {
		n.a.unwatched = true
		n.a.Reader.Strangers(n.a.pods, func(string) {})
		n.a.watchCgroups(now)
	}
	look()
	if got := n.a.atOwnLimit(now); len(got) != 0 {
		t.Errorf("there before: %+v", got)
	}
	pod := "cgroup/kubepods/besteffort/pod" + later + "/"
	n.write(pod+"cgroup.procs", "")
	n.write(pod+"cgroup.events", "populated 1\nfrozen 0\n")
	n.write(pod+"memory.events", "low 0\nhigh 0\nmax 9\noom 0\noom_kill 0\n")
	n.a.told(nri.Update{State: nri.State{Synced: true}})
	if !n.a.unwatched || !n.a.counted.IsZero() {
		t.Error("what the runtime tells is not looked for at once")
	}
	look()
	if got := n.a.atOwnLimit(now); len(got) != 1 || got[0].Pod.UID != later || !strings.Contains(n.log.String(), "no reason to evict another") {
		t.Errorf("new: %+v\n%s", got, n.log)
	}
}
