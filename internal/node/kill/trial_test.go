package kill

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"jettison/cgroup"
	"jettison/internal/base/logthrottle"
)

// While a resource is short at the start the self-test is postponed. It runs in a goroutine later, at most one at a time, and runs again if
// it was stopped.
func TestPostponedTrial(t *testing.T) {
	var text bytes.Buffer
	trial := NewTrial(nil, func() string { return "own" }, logthrottle.New(slog.New(slog.NewTextHandler(&text, nil))))
	tests := 0
	trial.test = func(_ context.Context, _ *cgroup.FS, own string) Report { tests++; return Report{Where: own} }
	if trial.Tick(t.Context()); tests != 0 {
		t.Errorf("self-tests run by Tick before AtStart = %d, want 0", tests)
	}
	if _, ok := trial.AtStart(t.Context(), true); ok || tests != 0 || !strings.Contains(text.String(), "self-test postponed") {
		t.Errorf("AtStart = %v with %d self-tests, want false, 0 and a log line; log:\n%s", ok, tests, &text)
	}
	trial.test = func(ctx context.Context, _ *cgroup.FS, _ string) Report { tests++; <-ctx.Done(); return Report{} }
	trial.Tick(t.Context())
	trial.Tick(t.Context())
	trial.Stop() // a resource is short
	if <-trial.Done(); trial.OnDone(t.Context(), &Report{}) || tests != 1 {
		t.Errorf("after Stop: %d self-tests, want 1 with a report that does not count", tests)
	}
	trial.test = func(context.Context, *cgroup.FS, string) Report { tests++; return Report{} }
	trial.Tick(t.Context())
	if <-trial.Done(); !trial.OnDone(t.Context(), &Report{}) || tests != 2 {
		t.Errorf("after the second Tick: %d self-tests, want 2 with a report that counts", tests)
	}
	trial.Wait()
	if trial.Tick(t.Context()); trial.cancel != nil {
		t.Error("Tick started a third self-test, want none")
	}
	trial.Stop() // no self-test runs
	if trial.postponed {
		t.Error("Stop without a running self-test postponed one")
	}
}

// AtStart runs the self-test if no resource is short.
func TestTrialAtStart(t *testing.T) {
	trial := NewTrial(nil, func() string { return "own" }, logthrottle.New(slog.New(slog.DiscardHandler)))
	trial.test = func(_ context.Context, _ *cgroup.FS, own string) Report { return Report{Where: own} }
	if r, ok := trial.AtStart(t.Context(), false); !ok || r.Where != "own" {
		t.Errorf("AtStart = %+v, %v, want a report from own", r, ok)
	}
}

// On a starved node a self-test may end before its process starts. The inconclusive test is retried, and the last report counts.
func TestInconclusiveTrial(t *testing.T) {
	var text bytes.Buffer
	trial := NewTrial(nil, func() string { return "own" }, logthrottle.New(slog.New(slog.NewTextHandler(&text, nil))))
	late := Report{Steps: []Result{{Step: CgroupKill.String(), Outcome: Untested}, {Step: Pidfd.String(), Outcome: Untested}}}
	trial.test = func(context.Context, *cgroup.FS, string) Report { return late }
	if _, ok := trial.AtStart(t.Context(), false); ok || !strings.Contains(text.String(), "self-test inconclusive, will retry") {
		t.Errorf("AtStart = %v, want false and a log line about the retry; log:\n%s", ok, &text)
	}
	trial.Tick(t.Context())
	if r := <-trial.Done(); trial.OnDone(t.Context(), &r) {
		t.Error("OnDone of the second inconclusive self-test = true, want false")
	}
	trial.Tick(t.Context())
	if r := <-trial.Done(); !trial.OnDone(t.Context(), &r) {
		t.Error("OnDone of the last self-test = false, want true")
	}
	late.Steps[0].Outcome = Refused // the step was tried
	trial.tries = 0
	if _, ok := trial.AtStart(t.Context(), false); !ok {
		t.Error("AtStart with a refused step = false, want true")
	}
	trial.Wait()
}
