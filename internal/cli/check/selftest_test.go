package check

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"jettison/internal/node/kill"
)

// A refused step fails the check and names the privilege. A step without a result in time is unknown, which fails no check.
func TestKillSteps(t *testing.T) {
	late := fmt.Errorf("wait for the process to start: %w", os.ErrDeadlineExceeded)
	step := func(name string, outcome kill.Outcome, err error) kill.Result {
		return kill.Result{Step: name, Outcome: outcome, Err: err}
	}
	for name, c := range map[string]struct {
		steps         []kill.Result
		failure, note string
	}{
		"all work": {[]kill.Result{step("cgroup.kill", kill.Works, nil), step("pidfd", kill.Works, nil)}, "", ""},
		"a starved node": {[]kill.Result{step("cgroup.kill", kill.Unknown, late), step("pidfd", kill.Unknown, late)},
			"", "run jettison check again"},
		"one step in time": {[]kill.Result{step("cgroup.kill", kill.Works, nil), step("pidfd", kill.Unknown, late)}, "", ""},
		"a missing privilege": {[]kill.Result{step("cgroup.kill", kill.Works, nil),
			step("pidfd", kill.Refused, fmt.Errorf("%w: requires CAP_KILL", unix.EPERM))}, "pidfd: operation not permitted: requires CAP_KILL", ""},
		"an old kernel": {[]kill.Result{step("cgroup.kill", kill.Absent, unix.ENOENT), step("pidfd", kill.Absent, unix.ENOSYS)},
			"no step of the kill ladder works", ""},
	} {
		var r Result
		err := r.addSteps(&kill.Report{Steps: c.steps})
		if (err != nil) != (c.failure != "") || err != nil && !strings.Contains(err.Error(), c.failure) {
			t.Errorf("%s: error = %v, want %q", name, err, c.failure)
		}
		if notes := strings.Join(r.Notes, "\n"); (notes != "") != (c.note != "") || !strings.Contains(notes, c.note) {
			t.Errorf("%s: notes = %q, want %q", name, notes, c.note)
		}
		for i, s := range r.Rungs {
			if s.Answer != string(c.steps[i].Outcome) || (s.Detail != "") != (c.steps[i].Err != nil) {
				t.Errorf("%s: step %d = %+v, want the result %v", name, i, s, c.steps[i])
			}
		}
	}
}
