package kill

import (
	"fmt"
	"time"
)

// Outcome is what the self-test found out about a rung.
type Outcome string

// The outcomes.
const (
	Works    Outcome = "works"
	Refused  Outcome = "refused"
	Absent   Outcome = "absent" // not in this kernel, or not switched on
	Untested Outcome = "not tested"
)

// Result is one rung's.
type Result struct {
	Rung    string
	Outcome Outcome
	Err     error         // why it does not work
	Took    time.Duration // a kill: until the cgroup was empty; else the step itself
}

// String is the result in words.
func (r Result) String() string {
	if r.Err != nil {
		return fmt.Sprintf("%s: %v", r.Outcome, r.Err)
	}
	return fmt.Sprintf("%s (%v)", r.Outcome, r.Took.Round(10*time.Microsecond))
}

// Report is what SelfTest found out: the rungs in the ladder's order, without the runtime's.
type Report struct {
	Where string // the cgroup in which the scratch ones were made, below the root
	Rungs []Result
}

// Log is the report as attributes for log/slog.
func (r *Report) Log() []any {
	out := []any{"where", "/" + r.Where}
	for _, rung := range r.Rungs {
		out = append(out, rung.Rung, rung.String())
	}
	return out
}

// Kills reports whether one of the rungs that kill works.
func (r *Report) Kills() bool {
	for _, rung := range r.Rungs {
		if byName(rung.Rung).has(CgroupKill|Pidfd) && rung.Outcome == Works {
			return true
		}
	}
	return false
}

// untried reports whether nothing was found out of the rungs that kill.
func (r *Report) untried() (none bool) {
	for _, rung := range r.Rungs {
		if byName(rung.Rung).has(CgroupKill | Pidfd) {
			if none = true; rung.Outcome != Untested {
				return false
			}
		}
	}
	return none
}
