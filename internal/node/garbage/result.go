package garbage

import (
	"fmt"
	"time"

	"jettison/reclaim"
	"jettison/stats"
)

// Result is what a pass has done.
type Result struct {
	What    What
	Trigger reclaim.Trigger
	Began   time.Time
	Looked  time.Duration // for the look and the plan
	Took    time.Duration // for all of it
	// Observed says why nothing was to be removed, but for what an eviction had begun to remove;
	// empty: it was.
	Observed string
	// PutOff says why a pass was not made now although it was due; empty: it was made.
	PutOff string
	Plan   reclaim.Plan
	Done   []Done   // a step each, in the order in which they were taken
	Odd    []string // what is wrong with the node or with what was seen of it
	// Unseen is why images, which the pass was for as well, were not looked at; the rest was
	// collected. It is in Odd, too.
	Unseen error
	// Filesystems that things were removed from, before and after.
	Filesystems []Change
	// Err ended the pass: the runtime does not answer, or ctx is over.
	Err error
}

// DryRun is Observed of what only plans.
const DryRun = "dry run"

// Done is what became of a step of the plan. There may be tens of thousands, so that none is
// copied.
type Done struct {
	*reclaim.Step
	Outcome Outcome
	Why     string            // it was skipped
	Err     error             // it failed, or a part of it
	Freed   stats.Opt[uint64] // bytes that are available since; absent: not measured by itself
	Took    time.Duration
}

// Outcome is one.
type Outcome uint8

// The outcomes.
const (
	Removed Outcome = iota
	WasGone         // something else has removed it
	Skipped         // it may not be removed any more, or need not, or not yet
	Failed
)

// String is "removed", "was gone", "skipped" or "failed".
func (o Outcome) String() string {
	return [...]string{"removed", "was gone", "skipped", "failed"}[o]
}

// Change is how much was available on a file system.
type Change struct {
	Path          string
	Device        uint64
	Before, After uint64 // bytes
}

// Count is how many steps had an outcome.
func (r *Result) Count(o Outcome) (n int) {
	for i := range r.Done {
		if r.Done[i].Outcome == o {
			n++
		}
	}
	return n
}

// Predicted are the bytes that the steps that were carried out should have freed, as far as
// something was said of that.
func (r *Result) Predicted() (sum uint64) {
	for i := range r.Done {
		if d := &r.Done[i]; d.Outcome == Removed {
			sum += d.Bytes.V
		}
	}
	return sum
}

// Freed are the bytes that are available since on the file systems that things were removed from.
// Others that write there meanwhile, or remove, count too. Absent: none was measured.
func (r *Result) Freed() (sum stats.Opt[uint64]) {
	for _, c := range r.Filesystems {
		sum.OK = true
		if c.After > c.Before {
			sum.V += c.After - c.Before
		}
	}
	return sum
}

// Problems are what is wrong, in one line each: with the policy, with the node, with what was seen
// of it, and with the steps that failed.
func (r *Result) Problems() []string {
	out := append(append([]string{}, r.Odd...), r.Plan.Problems()...)
	for i := range r.Done {
		if d := &r.Done[i]; d.Err != nil {
			out = append(out, fmt.Sprintf("%v %.128q: %v", d.Action, d.ID, d.Err))
		}
	}
	return out
}

// Fields are the result's for a log line, as log/slog takes them.
func (r *Result) Fields() []any {
	fields := []any{"what", r.What.String(), "trigger", r.Trigger.String(), "planned",
		len(r.Plan.Steps)}
	if r.Observed != "" {
		if fields = append(fields, "observed", r.Observed); len(r.Done) == 0 {
			return fields
		}
	}
	fields = append(fields, "removed", r.Count(Removed), "failed", r.Count(Failed),
		"skipped", r.Count(Skipped), "predicted", r.Predicted())
	if freed := r.Freed(); freed.OK {
		fields = append(fields, "freed", freed.V)
	}
	fields = append(fields, "took", r.Took)
	if r.PutOff != "" {
		fields = append(fields, "putOff", r.PutOff)
	}
	if r.Err != nil {
		fields = append(fields, "error", r.Err)
	}
	return fields
}
