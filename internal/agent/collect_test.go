package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"jettison/internal/garbage"
	"jettison/reclaim"
)

// What a pass says beside its steps is logged when it changes: a state file that was none, a disk that images cannot make room on, what
// is nobody's, and what a kubelet has to collect.
func TestWhatAPassSaysIsLogged(t *testing.T) {
	n := newTestNode(t)
	now := time.Now()
	step := reclaim.Step{Action: reclaim.RemoveContainer, ID: "c"}
	say := func(r garbage.Result, want ...string) {
		t.Helper()
		n.log.Reset()
		r.What = garbage.Everything
		n.a.garbage(now, &r)
		got := strings.Count(n.log.String(), "\n")
		if got != len(want) {
			t.Errorf("%d lines, want %d:\n%s", got, len(want), n.log)
		}
		for _, w := range want {
			if !strings.Contains(n.log.String(), w) {
				t.Errorf("no %q in\n%s", w, n.log)
			}
		}
	}
	say(garbage.Result{})
	odd := garbage.Result{Observed: garbage.DryRun, Odd: []string{"images.json: starting anew"}}
	say(odd, "starting anew")
	say(odd)
	say(garbage.Result{Plan: reclaim.Plan{Short: "Insufficient free disk space"}}, "Insufficient free disk space")
	say(garbage.Result{})
	say(garbage.Result{Plan: reclaim.Plan{Short: "Insufficient free disk space"}}, "Insufficient free disk space")
	left := garbage.Result{Plan: reclaim.Plan{Left: make([]reclaim.Left, 20)}}
	say(left, "and 4 more")
	say(left)
	observed := garbage.Result{Observed: "a kubelet does", Plan: reclaim.Plan{Steps: []reclaim.Step{step}}}
	say(observed, "planned=1")
	say(observed)
	say(garbage.Result{Observed: garbage.DryRun, Plan: observed.Plan})
	unseen := errors.New("no image goes")
	say(garbage.Result{Unseen: unseen, Odd: []string{unseen.Error()}}, "no image goes")
}
