package agent

import (
	"context"
	"time"

	"jettison/cmd/jettison/internal/kill"
	"jettison/cmd/jettison/internal/protect"
)

// startKiller starts the threads that free what victims leave. The returned function ends them. A dry run kills nobody.
func (a *agent) startKiller() (stop func()) {
	if a.o.DryRun {
		return func() {}
	}
	killer := kill.New(kill.Options{FS: a.FS, Ladder: a.o.Ladder})
	for _, err := range killer.Refused() {
		a.log.Warn("not as it should be", "error", err)
	}
	a.pin = killer.Pin
	return func() {
		if err := killer.Close(); err != nil {
			a.log.Warn("stopping", "error", err)
		}
	}
}

// rehearse finds out which rungs of the kill ladder work here, on processes of the agent's own, and how long a look and a kill take.
func (a *agent) rehearse(ctx context.Context) {
	start := time.Now()
	a.rehearsal(start)
	a.advice.react(soonest + time.Since(start))
	if a.o.DryRun || hard(a.manager.Met()) { // no time for it: the first look waits
		return
	}
	report := kill.SelfTest(ctx, a.FS, a.Collector.Self())
	for _, rung := range report.Rungs {
		if rung.Outcome == kill.Works && rung.Rung == kill.CgroupKill.String() {
			a.advice.release(rung.Took)
		}
	}
	if !report.Kills() {
		a.log.Error("self-test: no way to kill works here, so that only the runtime can end a pod", report.Log()...)
	} else {
		a.log.Info("self-test", report.Log()...)
	}
	a.advise()
}

// protect keeps the agent's memory from being reclaimed. The returned function undoes what would outlive the agent.
func (a *agent) protect() (undo func()) {
	own := a.Collector.Self()
	if own == "" || a.o.DryRun {
		return func() {}
	}
	restore, refused := protect.Memory(a.FS, own, !a.kubelet)
	for _, err := range refused {
		a.log.Warn("not as it should be", "error", err)
	}
	return func() {
		if err := restore(); err != nil {
			a.log.Warn("stopping", "error", err)
		}
	}
}

// rehearsal looks at the node and its pods as a decision does.
func (a *agent) rehearsal(now time.Time) {
	a.measure(now)
	_ = a.readVictims(now) // a decision says what is wrong
}
