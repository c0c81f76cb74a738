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

// The whole loop with concurrent clients, ended during an eviction: nothing races, hangs or
// remains.
func TestTheLoopEndsDuringAnEviction(t *testing.T) {
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
				_ = l.publisher.currentState()
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
	for !evictionPublished(l.publisher) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	start := time.Now()
	<-ended
	l.evictions.Interrupted()
	l.end()
	wait()
	all.Wait()
	// The hanging call of StopPodSandbox would take its whole minute, repeatedly.
	if took := time.Since(start); took > time.Minute/2 || !strings.Contains(l.Text(), "agent stopped during eviction") {
		t.Errorf("the loop ended after %v\n%s", took, l.Text())
	}
}

// evictionPublished reports whether the published State has an eviction in progress.
func evictionPublished(s *publisher) bool {
	state, ok := s.currentState().(*api.State)
	return ok && len(state.InProgress) > 0
}

// However many events occur, looks keep their minimum distance. An event after the burst is seen,
// too.
func TestBurstOfEventsCausesFewLooks(t *testing.T) {
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
		for time.Since(start) < time.Duration(i)*10*time.Microsecond { // a tenth of a second in total, fifty times the distance of two looks
		}
		if _, err := unix.Write(fd, one); err != nil {
			t.Fatal(err)
		}
	}
	before := l.lookCount()
	if _, err := unix.Write(fd, one); err != nil {
		t.Fatal(err)
	}
	for l.lookCount() == before { // until the event after the burst is seen
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
	looks, took := l.looks.Count(), time.Since(began)
	if most := uint64(took/pace.MinInterval) + 4; looks > most { // one each at start, for the first event, for the last, and for the one after
		t.Errorf("%d looks for %d events in %v, want at most %d", looks, events, took, most)
	}
	t.Logf("%d looks in %v", looks, took)
}

// lookCount returns the number of looks in the published State.
func (l *testLoop) lookCount() uint64 {
	if state, ok := l.publisher.currentState().(*api.State); ok {
		return state.Looks
	}
	return 0
}

// The runtime's events are processed immediately: a new pod is watched from the next second on.
func TestRuntimeEvents(t *testing.T) {
	l := newLoop(t, "", nil)
	l.onEvents(nri.Update{Pods: nri.Pods{nodetest.UID: {Sandboxes: []cri.PodSandbox{
		{ID: "s", UID: nodetest.UID, Name: "pod", Namespace: "default", Ready: true},
	}}}, State: nri.State{Synced: true}})
	if len(l.pods.All()) != 1 || !l.gate.Enforces() {
		t.Errorf("known pods %v, evicted pods refused %v", l.pods.All(), l.gate.Enforces())
	}
	if name := l.pods.Name(stats.PodReference{UID: nodetest.UID}); name != "default/pod" {
		t.Errorf("name of the pod = %s, want default/pod", name)
	}
}

// A list and a garbage collection pass use memory that is returned soon; a failed list does not.
func TestMemoryIsReturnedAfterAList(t *testing.T) {
	l := newLoop(t, "", nil)
	start := time.Now().Add(time.Hour)
	l.upkeep.trim.Tick(start)
	soon := start.Add(30 * time.Second)
	if l.onListed(podlister.Update{Err: context.Canceled}); l.upkeep.trim.Tick(soon) {
		t.Error("memory is returned after a failed list")
	}
	if l.onListed(podlister.Update{}); !l.upkeep.trim.Tick(soon) {
		t.Error("memory is not returned after a list")
	}
	l.upkeep.trim.Wait()
}

// diskVictim returns the decision while the pods' disk is full.
func (l *testLoop) diskVictim() eviction.Decision {
	if err := l.readVictims(time.Now()); err != nil {
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
		d = m.StepAfterReclaim(time.Now(), in)
	}
	return d
}

// A signal without an observation for long is logged as lost once, and as observed again once.
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
	if strings.Count(l.Text(), "signal lost") != 1 || len(l.looks.Errors()) != 1 {
		t.Errorf("errors %v, want the lost signal; log: %s", l.looks.Errors(), l.Text())
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
		t.Errorf("errors %v after the recovery, want none; log: %s", l.looks.Errors(), l.Text())
	}
}
