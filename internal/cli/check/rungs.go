package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"jettison/internal/base/output"
	"jettison/internal/node/kill"
	"jettison/internal/node/sources"
)

// ladderPurpose is what each rung is for.
var ladderPurpose = map[string]string{
	"cgroup.kill": "kills a pod by one write",
	"pidfd":       "kills it process by process, where that is missing or refused",
	"cpu":         "lets a pod that is starved of CPU die",
	"mrelease":    "frees its memory from threads of the agent's",
}

// tryLadder runs the self-test, where this process may write to cgroups. The error names the rungs
// that are refused.
func (r *Result) tryLadder(ctx context.Context, s *sources.Sources) error {
	if s.FS.ReadOnly() || os.Geteuid() != 0 {
		r.Rungs = append(r.Rungs, Rung{
			Name: "all", Answer: string(kill.Untested),
			Detail: "needs root and a writable cgroup v2 hierarchy (docs/operate/privileges.md)",
		})
		return nil
	}
	report := kill.SelfTest(ctx, s.FS, s.Reader.Self())
	return r.tried(&report)
}

// tried takes what a self-test has found.
func (r *Result) tried(report *kill.Report) error {
	var refused []string
	for _, g := range report.Rungs {
		rung := Rung{Name: g.Rung, Answer: string(g.Outcome), WhatFor: ladderPurpose[g.Rung]}
		if g.Err != nil {
			rung.Detail = output.OneLine(g.Err.Error())
		} else {
			rung.Took = g.Took.Round(10 * time.Microsecond).String()
		}
		if g.Outcome == kill.Refused {
			refused = append(refused, g.Rung+": "+rung.Detail)
		}
		r.Rungs = append(r.Rungs, rung)
	}
	switch {
	case len(refused) > 0:
		return fmt.Errorf("check: rungs of the kill ladder are refused: %s: give the agent what docs/operate/privileges.md names",
			strings.Join(refused, "; "))
	case len(report.Rungs) > 0 && !report.Kills():
		return errors.New("check: no rung of the kill ladder kills here, so that only the runtime can end a pod")
	}
	return nil
}
