package kill

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Outcome is the result of the self-test for one kill step.
type Outcome string

// The outcomes.
const (
	Works   Outcome = "works"
	Refused Outcome = "refused" // a privilege is missing
	Absent  Outcome = "absent"  // missing in this kernel, or disabled
	Unknown Outcome = "unknown" // not known yet: no result in time, or a passing failure
)

// cgroupWrite is the privilege of steps that write files of cgroups.
const cgroupWrite = "root and a writable cgroup v2 hierarchy"

// privileges has the privilege that each step requires.
var privileges = map[Ladder]string{
	CgroupKill: cgroupWrite,
	Pidfd:      "CAP_KILL, and AppArmor and seccomp profiles that allow signals to pods",
	CPU:        "CAP_SYS_NICE",
	Mrelease:   "a seccomp profile that allows pidfd_open and process_mrelease",
}

// resultOf returns the result of a step. Only the kernel's refusal is one: a step that got no CPU
// time, memory or descriptor may work at the next try.
func resultOf(step Ladder, err error) Result {
	r := Result{Step: step.String(), Err: err}
	switch {
	case err == nil:
		r.Outcome = Works
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		r.Outcome = Absent
	case refused(err):
		r.Outcome, r.Err = Refused, fmt.Errorf("%w: requires %s", err, privileges[step])
	default:
		r.Outcome = Unknown
	}
	return r
}

// untried returns the result of a step without a process to try it on. Without permission to create
// that process, the step is refused as well.
func untried(step Ladder, err error) Result {
	r := Result{Step: step.String(), Outcome: Unknown, Err: err}
	if refused(err) {
		r.Outcome, r.Err = Refused, fmt.Errorf("%w: requires %s", err, cgroupWrite)
	}
	return r
}

// refused reports whether the kernel refused a call that requires a privilege.
func refused(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)
}

// Result is the self-test result of one kill step.
type Result struct {
	Step    string
	Outcome Outcome
	Err     error         // why the step does not work, or is unknown
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

// Inconclusive reports whether no step that kills is known to work, and at least one may.
func (r *Report) Inconclusive() bool {
	return !r.Kills() && slices.ContainsFunc(r.Steps, func(step Result) bool {
		return byName(step.Step).has(CgroupKill|Pidfd) && step.Outcome == Unknown
	})
}
