package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/api"
	"jettison/cri"
	"jettison/cri/nri"
	"jettison/eviction"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/agent/pace"
	"jettison/internal/agent/podlister"
	"jettison/internal/node/nodetest"
	"jettison/stats"
)

// The whole loop with everything that talks to it at once, ended in the middle of an eviction: nothing races, hangs or stays behind.
func TestTheLoopEndsInTheMiddleOfAll(t *testing.T) {
	l := newLoop(t, "", nil)
	l.onListed(podlister.Update{Pods: l.Runs()})
	l.Runtime.Change(func() { l.Runtime.Hang = map[string]bool{"StopPodSandbox": true} })
	l.killable()
	ctx, cancel := context.WithCancel(t.Context())
	wait := l.pods.Start(ctx)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = l.shown.forOthers()
			}
		})
	}
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			pod := fmt.Sprintf(`{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"uid": %q, "name": "p%d",
				"namespace": "default"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}]}`, nodetest.UID, i)
			if _, _, err := l.objects.Store().Put(strings.NewReader(pod), true, podstore.ByRoot); err != nil {
				t.Error(err)
				return
			}
		}
	})
	ended := make(chan struct{})
	go func() { l.run(ctx); close(ended) }()
	l.Available(90)
	for !under(l.shown) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	start := time.Now()
	<-ended
	l.evictions.Interrupted()
	l.end()
	wait()
	all.Wait()
	// The call of StopPodSandbox that hangs would take its whole minute, again and again.
	if took := time.Since(start); took > time.Minute/2 || !strings.Contains(l.Text(), "agent stopped during eviction") {
		t.Errorf("ended after %v\n%s", took, l.Text())
	}
}

// under reports whether an eviction is under way, as others see it.
func under(s *shown) bool {
	state, ok := s.forOthers().(*api.State)
	return ok && len(state.Underway) > 0
}

// However many events come at once, looks are as far apart as ever. What comes after the burst is seen, too.
func TestABurstOfEventsCostsABoundedNumberOfLooks(t *testing.T) {
	l := newLoop(t, "", nil)
	stop := l.wakes.Start()
	defer stop()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := l.wakes.AddFile("burst", fd); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	began := time.Now()
	go func() { l.run(ctx); close(ended) }()
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
	before := l.looked()
	if _, err := unix.Write(fd, one); err != nil {
		t.Fatal(err)
	}
	for l.looked() == before { // what comes after the burst is seen
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
	looks, took := l.looks.Count(), time.Since(began)
	if most := uint64(took/pace.MinInterval) + 4; looks > most { // one at the start, for the first event, for the last, and for the one after
		t.Errorf("%d looks for %d events in %v, want at most %d", looks, events, took, most)
	}
	t.Logf("%d looks in %v", looks, took)
}

// looked is how many looks the published State counts.
func (l *testLoop) looked() uint64 {
	if state, ok := l.shown.forOthers().(*api.State); ok {
		return state.Looks
	}
	return 0
}

// What the runtime tells is looked for at once: a new pod is watched from the next second on.
func TestWhatTheRuntimeTellsIsHandedOn(t *testing.T) {
	l := newLoop(t, "", nil)
	l.onTold(nri.Update{Pods: nri.Pods{nodetest.UID: {Sandboxes: []cri.PodSandbox{
		{ID: "s", UID: nodetest.UID, Name: "pod", Namespace: "default", Ready: true},
	}}}, State: nri.State{Synced: true}})
	if len(l.pods.All()) != 1 || !l.gate.Enforces() {
		t.Errorf("known: %v, kept out: %v", l.pods.All(), l.gate.Enforces())
	}
	if name := l.pods.Name(stats.PodReference{UID: nodetest.UID}); name != "default/pod" {
		t.Error(name)
	}
}

// A list and a pass of garbage collection take memory that is given back soon; a failed list does not.
func TestWhatTakesMemory(t *testing.T) {
	l := newLoop(t, "", nil)
	start := time.Now().Add(time.Hour)
	l.upkeep.trim.Tick(start)
	soon := start.Add(30 * time.Second)
	if l.onListed(podlister.Update{Err: context.Canceled}); l.upkeep.trim.Tick(soon) {
		t.Error("a list that failed takes memory")
	}
	if l.onListed(podlister.Update{}); !l.upkeep.trim.Tick(soon) {
		t.Error("a list takes memory that is not given back")
	}
	l.upkeep.trim.Wait()
}

// diskVictim is what is decided while the pods' disk is full.
func (l *testLoop) diskVictim() eviction.Decision {
	if err := l.lookAtVictims(time.Now()); err != nil {
		panic(err)
	}
	s := stats.Summary{Node: *l.looks.Node(), Pods: l.looks.Summary().Pods}
	s.Node.Fs = stats.Some(stats.FsStats{
		Time: time.Now(), AvailableBytes: stats.Some(uint64(1)), CapacityBytes: stats.Some(uint64(1 << 40)),
	})
	s.Node.Layout = stats.Some(stats.Layout{})
	m := eviction.NewManager(eviction.Config{Thresholds: l.o.Config.Thresholds})
	in := eviction.Input{Summary: &s}
	d := m.Step(time.Now(), in)
	if len(d.Reclaim) > 0 {
		d = m.Reclaimed(time.Now(), in)
	}
	return d
}

// A signal that is not observed for long, whatever the cause, is said to be lost once, and to be back once.
func TestALostSignalIsLoggedOnce(t *testing.T) {
	l := newLoop(t, "evictionHard: {memory.available: 100Mi, nodefs.available: 10%}\n", func(o *Options) {
		o.HostRoot = filepath.Join(t.TempDir(), "none")
	})
	now := time.Now()
	for i := range 20 {
		at := now.Add(time.Duration(i) * time.Second)
		l.measure(at)
		l.looks.UpdateLost(l.manager.Lost(at))
	}
	if strings.Count(l.Text(), "signal is not observed") != 1 || len(l.looks.Errors()) != 1 {
		t.Errorf("errors %v, log: %s", l.looks.Errors(), l.Text())
	}
	now = now.Add(time.Minute)
	l.looks.Node().Fs = stats.Some(stats.FsStats{
		Time: now, AvailableBytes: stats.Some(uint64(1 << 30)), CapacityBytes: stats.Some(uint64(1 << 30)),
	})
	for range 2 {
		l.measure(now)
		l.looks.UpdateLost(l.manager.Lost(now))
	}
	if strings.Count(l.Text(), "observed again") != 1 || len(l.looks.Errors()) != 0 {
		t.Errorf("log: %s", l.Text())
	}
}
