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

// While something is short at the start the self-test is put off, made beside the loop afterwards, at most one at a time, and made again
// if it had to give way.
func TestATrialThatIsPutOff(t *testing.T) {
	var text bytes.Buffer
	trial := NewTrial(nil, func() string { return "own" }, logthrottle.New(slog.New(slog.NewTextHandler(&text, nil))))
	tests := 0
	trial.test = func(_ context.Context, _ *cgroup.FS, own string) Report { tests++; return Report{Where: own} }
	if trial.Tick(t.Context()); tests != 0 {
		t.Error("made although it was not put off")
	}
	if _, made := trial.AtStart(t.Context(), true); made || tests != 0 || !strings.Contains(text.String(), "self-test put off") {
		t.Errorf("made %v, %d tests\n%s", made, tests, &text)
	}
	trial.test = func(ctx context.Context, _ *cgroup.FS, _ string) Report { tests++; <-ctx.Done(); return Report{} }
	trial.Tick(t.Context())
	trial.Tick(t.Context())
	trial.Stop() // something is short
	if <-trial.Done(); trial.OnDone(t.Context(), &Report{}) || tests != 1 {
		t.Errorf("%d tests; what was broken off says something", tests)
	}
	trial.test = func(context.Context, *cgroup.FS, string) Report { tests++; return Report{} }
	trial.Tick(t.Context())
	if <-trial.Done(); !trial.OnDone(t.Context(), &Report{}) || tests != 2 {
		t.Errorf("%d tests, the last one says nothing", tests)
	}
	trial.Wait()
	if trial.Tick(t.Context()); trial.cancel != nil {
		t.Error("a third one")
	}
	trial.Stop() // nothing is under way
	if trial.putOff {
		t.Error("put off again")
	}
}

// Where nothing is short it is made at once.
func TestATrialAtTheStart(t *testing.T) {
	trial := NewTrial(nil, func() string { return "own" }, logthrottle.New(slog.New(slog.DiscardHandler)))
	trial.test = func(_ context.Context, _ *cgroup.FS, own string) Report { return Report{Where: own} }
	if r, made := trial.AtStart(t.Context(), false); !made || r.Where != "own" {
		t.Errorf("made %v: %+v", made, r)
	}
}

// On a starved node a self-test may end before its process has begun to run. That says nothing of what kills, so it is made again, and the
// last one is told as it is.
func TestATrialThatCouldNotBeMadeInTime(t *testing.T) {
	var text bytes.Buffer
	trial := NewTrial(nil, func() string { return "own" }, logthrottle.New(slog.New(slog.NewTextHandler(&text, nil))))
	late := Report{Rungs: []Result{{Rung: CgroupKill.String(), Outcome: Untested}, {Rung: Pidfd.String(), Outcome: Untested}}}
	trial.test = func(context.Context, *cgroup.FS, string) Report { return late }
	if _, made := trial.AtStart(t.Context(), false); made || !strings.Contains(text.String(), "could not be made, and is made again") {
		t.Errorf("made %v\n%s", made, &text)
	}
	trial.Tick(t.Context())
	if r := <-trial.Done(); trial.OnDone(t.Context(), &r) {
		t.Error("the second one is told")
	}
	trial.Tick(t.Context())
	if r := <-trial.Done(); !trial.OnDone(t.Context(), &r) {
		t.Error("the last one is not told")
	}
	late.Rungs[0].Outcome = Refused // it was tried
	trial.tried = 0
	if _, made := trial.AtStart(t.Context(), false); !made {
		t.Error("what was refused is not told")
	}
	trial.Wait()
}
