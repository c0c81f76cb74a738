package kill

import (
	"fmt"
	"time"
)

// Outcome is the result of the self-test for one kill step.
type Outcome string

// The outcomes.
const (
	Works    Outcome = "works"
	Refused  Outcome = "refused"
	Absent   Outcome = "absent" // missing in this kernel, or disabled
	Untested Outcome = "not tested"
)

// Result is the self-test result of one kill step.
type Result struct {
	Step    string
	Outcome Outcome
	Err     error         // why the step does not work
	Took    time.Duration // a kill: until the cgroup was empty; otherwise the step itself
}

// String returns the outcome with its error or duration.
func (r Result) String() string {
	if r.Err != nil {
		return fmt.Sprintf("%s: %v", r.Outcome, r.Err)
	}
	return fmt.Sprintf("%s (%v)", r.Outcome, r.Took.Round(10*time.Microsecond))
}

// Report is the result of SelfTest: the kill steps in the ladder's order, without ByRuntime.
type Report struct {
	Where string // parent of the scratch cgroups, below the root
	Steps []Result
}

// Log returns the report as attributes for log/slog.
func (r *Report) Log() []any {
	out := []any{"where", "/" + r.Where}
	for _, step := range r.Steps {
		out = append(out, step.Step, step.String())
	}
	return out
}

// Kills reports whether one of the steps that kill works.
func (r *Report) Kills() bool {
	for _, step := range r.Steps {
		if byName(step.Step).has(CgroupKill|Pidfd) && step.Outcome == Works {
			return true
		}
	}
	return false
}

// inconclusive reports whether all steps that kill are untested.
func (r *Report) inconclusive() (none bool) {
	for _, step := range r.Steps {
		if byName(step.Step).has(CgroupKill | Pidfd) {
			if none = true; step.Outcome != Untested {
				return false
			}
		}
	}
	return none
}
