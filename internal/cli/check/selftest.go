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

// stepPurpose maps each step of the kill ladder to its purpose.
var stepPurpose = map[string]string{
	"cgroup.kill": "kills a pod with one write",
	"pidfd":       "kills a pod process by process if cgroup.kill is missing or refused",
	"cpu":         "gives a CPU-starved pod the CPU time to die",
	"mrelease":    "frees the victim's memory from the agent's threads",
}

// maxSelfTests limits the attempts at a self-test that gives no result.
const maxSelfTests = 3

// selfTest runs the self-test if this process may write to cgroups. It returns an error that names
// the refused steps. A step without a result is unknown, which is no error.
func (r *Result) selfTest(ctx context.Context, s *sources.Sources) error {
	if s.FS.ReadOnly() || os.Geteuid() != 0 {
		r.Rungs = append(r.Rungs, Step{
			Name: "all", Answer: string(kill.Unknown),
			Detail: "requires root and a writable cgroup v2 hierarchy (docs/operate/privileges.md)",
		})
		return nil
	}
	report := kill.SelfTest(ctx, s.FS, s.Reader.Self())
	for n := 1; n < maxSelfTests && report.Inconclusive() && ctx.Err() == nil; n++ {
		report = kill.SelfTest(ctx, s.FS, s.Reader.Self())
	}
	return r.addSteps(&report)
}

// addSteps adds the results of a self-test.
func (r *Result) addSteps(report *kill.Report) error {
	var refused []string
	for _, g := range report.Steps {
		step := Step{Name: g.Step, Answer: string(g.Outcome), WhatFor: stepPurpose[g.Step]}
		if g.Err != nil {
			step.Detail = output.OneLine(g.Err.Error())
		} else {
			step.Took = g.Took.Round(10 * time.Microsecond).String()
		}
		if g.Outcome == kill.Refused {
			refused = append(refused, g.Step+": "+step.Detail)
		}
		r.Rungs = append(r.Rungs, step)
	}
	switch {
	case len(refused) > 0:
		return fmt.Errorf("check: refused steps of the kill ladder: %s: grant the privileges in docs/operate/privileges.md",
			strings.Join(refused, "; "))
	case report.Inconclusive():
		r.note("the self-test got no result in time, so it is unknown whether a step of the kill " +
			"ladder works: run jettison check again when the node is less busy")
	case len(report.Steps) > 0 && !report.Kills():
		return errors.New("check: no step of the kill ladder works on this node: only the runtime can kill a pod")
	}
	return nil
}
