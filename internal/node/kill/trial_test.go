package kill

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"jettison/cgroup"
	"jettison/internal/base/logthrottle"
)

// While a resource is short at the start the self-test is postponed. It runs in a goroutine later, at most one at a time, and runs again if
// it was stopped.
func TestPostponedTrial(t *testing.T) {
	var text bytes.Buffer
	trial := NewTrial(nil, func() string { return "own" }, logthrottle.New(slog.New(slog.NewTextHandler(&text, nil))))
	now, tests := time.Now(), 0
	trial.test = func(_ context.Context, _ *cgroup.FS, own string) Report { tests++; return Report{Where: own} }
	if trial.Tick(t.Context(), now); tests != 0 {
		t.Errorf("self-tests run by Tick before AtStart = %d, want 0", tests)
	}
	if _, ok := trial.AtStart(t.Context(), now, true); ok || tests != 0 || !strings.Contains(text.String(), "self-test postponed") {
		t.Errorf("AtStart = %v with %d self-tests, want false, 0 and a log line; log:\n%s", ok, tests, &text)
	}
	trial.test = func(ctx context.Context, _ *cgroup.FS, _ string) Report { tests++; <-ctx.Done(); return Report{} }
	trial.Tick(t.Context(), now)
	trial.Tick(t.Context(), now)
	trial.Stop() // a resource is short
	if <-trial.Done(); trial.OnDone(t.Context(), now, &Report{}) || tests != 1 {
		t.Errorf("after Stop: %d self-tests, want 1 with a report that does not count", tests)
	}
	trial.test = func(context.Context, *cgroup.FS, string) Report { tests++; return Report{} }
	trial.Tick(t.Context(), now)
	if <-trial.Done(); !trial.OnDone(t.Context(), now, &Report{}) || tests != 2 {
		t.Errorf("after the second Tick: %d self-tests, want 2 with a report that counts", tests)
	}
	trial.Wait()
	if trial.Tick(t.Context(), now); trial.cancel != nil {
		t.Error("Tick started a third self-test, want none")
	}
	trial.Stop() // no self-test runs
	if trial.postponed {
		t.Error("Stop without a running self-test postponed one")
	}
}

// AtStart runs the self-test if no resource is short.
func TestTrialAtStart(t *testing.T) {
	now := time.Now()
	trial := NewTrial(nil, func() string { return "own" }, logthrottle.New(slog.New(slog.DiscardHandler)))
	trial.test = func(_ context.Context, _ *cgroup.FS, own string) Report { return Report{Where: own} }
	if r, ok := trial.AtStart(t.Context(), now, false); !ok || r.Where != "own" {
		t.Errorf("AtStart = %+v, %v, want a report from own", r, ok)
	}
}

// On a starved node a self-test may end before its process starts or dies. Such a test is retried with backoff, however often. It
// counts when a step that kills works, or all are known not to.
func TestInconclusiveTrial(t *testing.T) {
	report := func(cgroupKill, pidfd Outcome) Report {
		return Report{Steps: []Result{{Step: CgroupKill.String(), Outcome: cgroupKill}, {Step: Pidfd.String(), Outcome: pidfd}}}
	}
	for _, c := range []struct {
		cgroupKill, pidfd Outcome
		counts            bool
	}{
		{Unknown, Unknown, false}, {Refused, Unknown, false}, {Unknown, Absent, false},
		{Works, Unknown, true}, {Unknown, Works, true}, {Refused, Refused, true}, {Absent, Refused, true},
	} {
		trial := NewTrial(nil, func() string { return "own" }, logthrottle.New(slog.New(slog.DiscardHandler)))
		trial.test = func(context.Context, *cgroup.FS, string) Report { return report(c.cgroupKill, c.pidfd) }
		if _, ok := trial.AtStart(t.Context(), time.Now(), false); ok != c.counts {
			t.Errorf("AtStart with cgroup.kill %s and pidfd %s = %v, want %v", c.cgroupKill, c.pidfd, ok, c.counts)
		}
	}

	var text bytes.Buffer
	trial := NewTrial(nil, func() string { return "own" }, logthrottle.New(slog.New(slog.NewTextHandler(&text, nil))))
	trial.test = func(context.Context, *cgroup.FS, string) Report { return report(Unknown, Unknown) }
	now := time.Now()
	if _, ok := trial.AtStart(t.Context(), now, false); ok || !strings.Contains(text.String(), "self-test inconclusive, will retry") {
		t.Errorf("AtStart = %v, want false and a log line about the retry; log:\n%s", ok, &text)
	}
	for pause := firstPause; pause < 2*maxPause; pause *= 2 {
		wait := min(pause, maxPause)
		if trial.Tick(t.Context(), now.Add(wait-time.Second)); trial.cancel != nil {
			t.Fatalf("a self-test runs less than %v after an inconclusive one", wait)
		}
		now = now.Add(wait)
		trial.Tick(t.Context(), now)
		if trial.cancel == nil {
			t.Fatalf("no self-test runs %v after an inconclusive one", wait)
		}
		if r := <-trial.Done(); trial.OnDone(t.Context(), now, &r) {
			t.Fatalf("OnDone of the inconclusive self-test after %v = true, want false", wait)
		}
	}
	trial.test = func(context.Context, *cgroup.FS, string) Report { return report(Works, Unknown) }
	trial.Tick(t.Context(), now.Add(maxPause))
	if r := <-trial.Done(); !trial.OnDone(t.Context(), now, &r) {
		t.Error("OnDone of a self-test with a working step = false, want true")
	}
	trial.Wait()
}
