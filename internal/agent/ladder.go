package agent

import (
	"context"
	"slices"
	"time"

	"jettison/cgroup"
	"jettison/eviction"
	"jettison/internal/kill"
	"jettison/internal/protect"
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
	if a.o.DryRun {
		return
	}
	if a.manager.Ready(time.Now()).HardMet { // no time for it: the first look waits
		a.ladder.putOff = true
		a.log.Warn("self-test put off until no threshold is met any more: it is not known yet what kills here")
		return
	}
	a.tested(a.ladder.test(ctx, a.FS, a.Reader.Self()))
}

// ladderTest is the self-test of the kill ladder. It belongs to the loop; one that was put off is made beside it.
type ladderTest struct {
	test   func(context.Context, *cgroup.FS, string) kill.Report
	putOff bool             // it is to be made
	cancel func()           // of the one under way; nil: none is
	done   chan kill.Report // one slot: what that found
}

// rehearseLate makes the self-test that was put off, once nothing that processes take is short and nobody is being evicted. A disk may stay
// short for days, and is no reason to wait for at the start either.
func (a *agent) rehearseLate(ctx context.Context) {
	l := &a.ladder
	if !l.putOff || l.cancel != nil || len(a.underway) > 0 {
		return
	}
	if slices.ContainsFunc(a.manager.Ready(time.Now()).Met, func(m eviction.Met) bool { return !m.Disk() }) {
		return
	}
	l.putOff = false
	ctx, l.cancel = context.WithCancel(ctx)
	own := a.Reader.Self()
	a.log.Info("self-test, which was put off: no threshold is met any more")
	a.evictions.Go(func() { l.done <- l.test(ctx, a.FS, own) })
}

// rehearsedLate takes what it has found, unless it was broken off.
func (a *agent) rehearsedLate(ctx context.Context, report kill.Report) {
	a.ladder.cancel()
	if a.ladder.cancel = nil; !a.ladder.putOff && ctx.Err() == nil {
		a.tested(report)
	}
}

// breakOff has a self-test that is under way make room for what is short now: it is made later. To be called after the kill.
func (a *agent) breakOff() {
	if a.ladder.cancel != nil {
		a.ladder.putOff = true
		a.ladder.cancel()
	}
}

// tested logs what the self-test has found, and takes how long a kill took.
func (a *agent) tested(report kill.Report) {
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
	own := a.Reader.Self()
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
