package collect

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"jettison/eviction"
	"jettison/reclaim"
	"jettison/stats"
)

// A relief ends the periodic pass that is under way, and comes at once.
func TestReliefEndsAPeriodicPass(t *testing.T) {
	n := newNode(t)
	n.now = time.Now
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
	for i := range 3 {
		n.container(fmt.Sprint("c", i), "s", uidA, exited, time.Hour-time.Duration(i)*time.Minute, "")
	}
	results := make(chan Result)
	var runner *Runner
	started := make(chan struct{})
	n.r.Answer["RemoveContainer"] = func(m any) any {
		if len(n.r.Removed) == 1 {
			<-started
			runner.Relieve(Relief{Wishes: []eviction.Wish{{What: eviction.ReclaimContainers, Signals: []stats.Signal{stats.SignalNodeFsAvailable}}}})
		}
		return m
	}
	runner = Start(n.Collector, Schedule{Started: time.Now().Add(-time.Minute + time.Millisecond), Containers: time.Minute}, func(r Result) { results <- r })
	close(started)
	first, second := <-results, <-results
	if first.Trigger != reclaim.Periodic || first.Count(Removed) != 1 || first.Count(Skipped) != 2 || first.Err != nil {
		t.Errorf("periodic: %v, %+v", first.Err, first.Done)
	}
	if second.Trigger != reclaim.DiskPressure || second.Count(Removed) != 2 {
		t.Errorf("relief: %+v", second.Done)
	}
	if err := runner.Close(time.Minute); err != nil {
		t.Error(err)
	}
}

func TestJustClose(t *testing.T) {
	n := newNode(t)
	n.now = time.Now
	for _, s := range []Schedule{{}, {Started: time.Now(), Containers: time.Hour, Images: time.Hour}} {
		if err := Start(n.Collector, s, func(Result) { t.Error("a pass") }).Close(time.Minute); err != nil {
			t.Error(err)
		}
	}
}

// Close ends a pass whose call hangs.
func TestCloseEndsACallThatHangs(t *testing.T) {
	n := newNode(t)
	n.now = time.Now
	n.r.Hang["ListPodSandbox"] = true
	got := make(chan Result, 1)
	r := Start(n.Collector, Schedule{}, func(r Result) { got <- r })
	r.Relieve(Relief{Wishes: []eviction.Wish{{What: eviction.ReclaimContainers}}})
	for n.r.Calls("ListPodSandbox") == 0 {
		time.Sleep(time.Millisecond) // the fake tells nobody
	}
	if err := r.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.Err == nil || errors.Is(r.Err, errLost) {
		t.Errorf("%v", r.Err)
	}
}
