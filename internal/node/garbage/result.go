package garbage

import (
	"fmt"
	"time"

	"jettison/reclaim"
	"jettison/stats"
)

// Result is the result of a pass.
type Result struct {
	What    Kind
	Trigger reclaim.Trigger
	Began   time.Time
	Looked  time.Duration // duration of the look and the plan
	Took    time.Duration // total duration
	// PlanOnly is the reason why the pass only planned; empty: it acted. Even then the pass finishes
	// removals that an eviction began.
	PlanOnly string
	// Postponed is the reason why a due pass was postponed; empty: it was not.
	Postponed string
	Plan      reclaim.Plan
	Done      []Done   // steps in the order of execution
	Warnings  []string // problems of the node and of the data read from it
	// ImagesErr is the reason why requested images were not read, while the rest was collected. Warnings
	// contains it too.
	ImagesErr error
	// Filesystems with removals, before and after.
	Filesystems []Change
	// Err ended the pass: the runtime does not answer, or ctx ended.
	Err error
}

// DryRun is the value of PlanOnly for Plan.
const DryRun = "dry run"

// Done is the outcome of a step of the plan. It refers to the step, because there may be tens of
// thousands.
type Done struct {
	*reclaim.Step
	Outcome Outcome
	Why     string            // why it was skipped
	Err     error             // why it failed, in whole or in part
	Freed   stats.Opt[uint64] // bytes freed by this step; absent: not measured separately
	Took    time.Duration
}

// Outcome is the outcome of a step.
type Outcome uint8

// The outcomes.
const (
	Removed Outcome = iota
	WasGone         // another program has removed the object
	Skipped         // the object must not, need not or cannot be removed now
	Failed
)

// String returns "removed", "was gone", "skipped" or "failed".
func (o Outcome) String() string {
	return [...]string{"removed", "was gone", "skipped", "failed"}[o]
}

// Change is the available space of a file system before and after a pass.
type Change struct {
	Path          string
	Device        uint64
	Before, After uint64 // bytes
}

// Count returns the number of steps with an outcome.
func (r *Result) Count(o Outcome) (n int) {
	for i := range r.Done {
		if r.Done[i].Outcome == o {
			n++
		}
	}
	return n
}

// Predicted returns the bytes that the removals were predicted to free. Removals without a
// prediction do not count.
func (r *Result) Predicted() (sum uint64) {
	for i := range r.Done {
		if d := &r.Done[i]; d.Outcome == Removed {
			sum += d.Bytes.V
		}
	}
	return sum
}

// Freed returns the growth of available bytes on the file systems with removals. It includes writes
// and removals by other programs. Absent: no file system was measured.
func (r *Result) Freed() (sum stats.Opt[uint64]) {
	for _, c := range r.Filesystems {
		sum.OK = true
		if c.After > c.Before {
			sum.V += c.After - c.Before
		}
	}
	return sum
}

// Problems returns the problems, one line each: of the policy, of the node, of the data read from
// it, and of failed steps.
func (r *Result) Problems() []string {
	out := append(append([]string{}, r.Warnings...), r.Plan.Problems()...)
	for i := range r.Done {
		if d := &r.Done[i]; d.Err != nil {
			out = append(out, fmt.Sprintf("%v %.128q: %v", d.Action, d.ID, d.Err))
		}
	}
	return out
}

// Fields returns the result as attributes for log/slog.
func (r *Result) Fields() []any {
	fields := []any{"what", r.What.String(), "trigger", r.Trigger.String(), "planned",
		len(r.Plan.Steps)}
	if r.PlanOnly != "" {
		if fields = append(fields, "planOnly", r.PlanOnly); len(r.Done) == 0 {
			return fields
		}
	}
	fields = append(fields, "removed", r.Count(Removed), "failed", r.Count(Failed),
		"skipped", r.Count(Skipped), "predicted", r.Predicted())
	if freed := r.Freed(); freed.OK {
		fields = append(fields, "freed", freed.V)
	}
	fields = append(fields, "took", r.Took)
	if r.Postponed != "" {
		fields = append(fields, "postponed", r.Postponed)
	}
	if r.Err != nil {
		fields = append(fields, "error", r.Err)
	}
	return fields
}
