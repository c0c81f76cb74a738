package garbage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/eviction"
	"jettison/internal/node/config"
	"jettison/reclaim"
	"jettison/stats"
)

// A relief ends the periodic pass in progress, and runs immediately.
func TestReliefEndsAPeriodicPass(t *testing.T) {
	n := newNode(t)
	n.now, n.slow = time.Now, time.Hour // slow lists postpone no pass
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
			runner.Relieve([]eviction.ReclaimRequest{{What: eviction.ReclaimContainers, Signals: []stats.Signal{stats.SignalNodeFsAvailable}}})
		}
		return m
	}
	runner = Start(n.Collector, Schedule{Started: time.Now().Add(-time.Minute + time.Millisecond), Containers: time.Minute}, func(r Result) { results <- r })
	close(started)
	first, second := <-results, <-results
	if first.Trigger != reclaim.Periodic || first.Count(Removed) != 1 || first.Count(Skipped) != 2 || first.Err != nil {
		t.Errorf("periodic pass = %v, %+v, want one removal and the rest skipped", first.Err, first.Done)
	}
	if second.Trigger != reclaim.DiskPressure || second.Count(Removed) != 2 {
		t.Errorf("relief = %+v, want two removals", second.Done)
	}
	if err := runner.Close(time.Minute); err != nil {
		t.Error(err)
	}
}

// A new policy ends the periodic pass in progress after its current step, and applies to the next one.
func TestAnotherPolicyEndsAPeriodicPass(t *testing.T) {
	n := newNode(t)
	n.now, n.slow = time.Now, time.Hour
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
	for i := range 3 {
		n.container(fmt.Sprint("c", i), "s", uidA, exited, time.Hour-time.Duration(i)*time.Minute, "")
	}
	results := make(chan Result)
	var runner *Runner
	started := make(chan struct{})
	observe := n.o.Collect
	observe.Mode = config.ModeObserve
	n.r.Answer["RemoveContainer"] = func(m any) any {
		<-started
		runner.Reconfigure(Policy{Collect: n.o.Collect})
		runner.Reconfigure(Policy{Collect: observe}) // replaces the pending policy
		return m
	}
	runner = Start(n.Collector, Schedule{Started: time.Now().Add(-time.Minute + time.Millisecond), Containers: time.Minute}, func(r Result) { results <- r })
	close(started)
	first := <-results
	if first.Count(Removed) != 1 || first.Count(Skipped) != 2 || first.Err != nil {
		t.Errorf("periodic pass = %v, %+v, want one removal and the rest skipped", first.Err, first.Done)
	}
	runner.Relieve([]eviction.ReclaimRequest{{What: eviction.ReclaimContainers, Signals: []stats.Signal{stats.SignalNodeFsAvailable}}})
	if second := <-results; second.Count(Removed) != 0 || second.PlanOnly != "gc: observe" {
		t.Errorf("relief = %q, %+v, want no removal by the new policy", second.PlanOnly, second.Done)
	}
	if err := runner.Close(time.Minute); err != nil {
		t.Error(err)
	}
}

// Problems of the state files are reported once, even if the first look fails.
func TestABrokenStateIsSaid(t *testing.T) {
	n := newNode(t)
	n.now = time.Now
	if err := os.WriteFile(filepath.Join(n.state, imagesFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.open(nil)
	if missing := n.Missing(); len(missing) != 1 || missing[0] != filepath.Join(n.state, podsFile) {
		t.Errorf("missing state files = %q, want only %s", missing, podsFile)
	}
	n.r.Fail["ListContainers"] = errors.New("no")
	results := make(chan Result)
	r := Start(n.Collector, Schedule{Detect: true}, func(r Result) { results <- r })
	if first := <-results; first.Err == nil {
		t.Errorf("result of the first look = %+v, want an error", first)
	}
	n.r.Change(func() { delete(n.r.Fail, "ListContainers") })
	for i, want := range []bool{true, false} {
		r.Relieve([]eviction.ReclaimRequest{{What: eviction.ReclaimImages}})
		if next := <-results; slices.ContainsFunc(next.Warnings, func(text string) bool { return strings.HasSuffix(text, "(starting with empty state)") }) != want {
			t.Errorf("result %d: problems = %q, want one about the state file: %v", i, next.Warnings, want)
		}
	}
	if err := r.Close(time.Minute); err != nil {
		t.Error(err)
	}
	n.open(nil)
	if err := os.WriteFile(filepath.Join(n.state, podsFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.open(nil)
	r = Start(n.Collector, Schedule{Detect: true}, func(r Result) { results <- r })
	if first := <-results; len(first.Warnings) != 1 || !strings.HasSuffix(first.Warnings[0], "(starting with empty state)") {
		t.Errorf("problems of the first look = %q, want one about the state file", first.Warnings)
	}
	if err := r.Close(time.Minute); err != nil {
		t.Error(err)
	}
}

// While removals are not permitted, passes for containers plan less often.
func TestWhatIsOnlyPlannedIsPlannedLess(t *testing.T) {
	n := newNode(t)
	n.open(func(o *Options) { o.Mode = "" })
	why := "process 7 is a kubelet"
	n.findKubelet = func() (bool, string) { return why != "", why }
	passes := 0
	r := &Runner{c: n.Collector, report: func(Result) { passes++ }, reliefs: make(chan []eviction.ReclaimRequest, 1)}
	for i, c := range []struct {
		after time.Duration
		what  Kind
		why   string
		want  int
	}{
		{0, Containers, why, 1}, {time.Minute, Containers, why, 1}, {0, Images, why, 2}, {4*time.Minute - 1, Containers, why, 2},
		{1, Containers, why, 3}, {time.Minute, Containers, "", 4}, {time.Minute, Containers, "", 5}, {time.Minute, Containers, why, 6},
		{-time.Hour, Containers, why, 7},
	} {
		n.clock, why = n.clock.Add(c.after), c.why
		if r.periodic(t.Context(), c.what); passes != c.want {
			t.Errorf("%d: %d passes, want %d", i, passes, c.want)
		}
	}
}

// The pass of minute 5 runs although its timer was less late than that of minute 0.
func TestWhatIsOnlyPlannedIsPlannedEachFiveMinutes(t *testing.T) {
	n := newNode(t)
	n.open(func(o *Options) { o.Mode = "" })
	n.findKubelet = func() (bool, string) { return true, "process 7 is a kubelet" }
	passes := 0
	r := &Runner{c: n.Collector, schedule: Schedule{Containers: time.Minute}, report: func(Result) { passes++ }, reliefs: make(chan []eviction.ReclaimRequest, 1)}
	due := n.clock
	for i, want := range []int{1, 1, 1, 1, 1, 2} {
		n.clock = due.Add(time.Duration(i)*time.Minute + time.Duration(10-i)*time.Millisecond)
		if r.periodic(t.Context(), Containers); passes != want {
			t.Errorf("minute %d: %d passes, want %d", i, passes, want)
		}
	}
}

func TestJustClose(t *testing.T) {
	n := newNode(t)
	n.now = time.Now
	for _, s := range []Schedule{{}, {Started: time.Now(), Containers: time.Hour, Images: time.Hour}} {
		if err := Start(n.Collector, s, func(Result) { t.Error("unexpected pass before the schedule") }).Close(time.Minute); err != nil {
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
	r.Relieve([]eviction.ReclaimRequest{{What: eviction.ReclaimContainers}})
	for n.r.Calls("ListPodSandbox") == 0 {
		time.Sleep(time.Millisecond) // the fake sends no event
	}
	if err := r.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.Err == nil || errors.Is(r.Err, errLost) {
		t.Errorf("error of the canceled pass = %v, want the end of the context", r.Err)
	}
}
