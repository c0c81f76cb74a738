package agent

import (
	"context"
	"runtime/debug"
	"strings"
	"time"

	"jettison/eviction"
	"jettison/stats"
)

// look is one cheap look and what follows from it.
func (a *agent) look(ctx context.Context, now time.Time) {
	a.lastLook, a.looks = now, a.looks+1
	met := a.measure(now)
	begun := false
	if len(met) > 0 {
		if a.ready.HardMet {
			a.stopSqueezing()
		}
		begun = a.rush(ctx, now)
		a.ready = a.manager.Ready(now)
		met = a.ready.Met // of the last measurement
		if a.ready.HardMet {
			a.breakOff()
		}
	}
	a.conditionsChanged(now, met)
	a.progress(now)
	if !begun {
		a.consider(ctx, now)
	}
	a.squeeze(now)
	a.recordMet(now, met)
	a.evictionsFirst()
	a.save(now)
}

// measure is the cheap look: memory and swap, the cgroup above all pods where it has a limit, tasks where a threshold is for them, and what MemAvailable does not count where memory
// is short.
func (a *agent) measure(now time.Time) []eviction.Met {
	a.readable("memory", a.Reader.Node(now, &a.node))
	if a.manager.LooksShort(&a.node) {
		a.Reader.PerCPU(&a.node)
	}
	if a.node.Allocatable.LimitBytes.OK { // the slow look finds out whether there is a limit
		a.readable("pods' cgroup", a.Reader.Allocatable(now, &a.node.Allocatable))
	}
	if a.manager.Watches(stats.SignalPIDAvailable) {
		a.readable("tasks", a.Reader.PIDs(now, &a.node.PIDs))
	}
	a.ready = a.manager.Observe(now, &a.node, a.situation())
	for i := range quick {
		a.paces[i].see(a.ready.Headroom[i].Observed)
	}
	return a.ready.Met
}

// slow is what is done once a second: the signals that change slowly, and whatever the runtime should be asked.
func (a *agent) slow(now time.Time) {
	a.readable("node", a.Reader.Slow(now, &a.node))
	if a.background != nil {
		a.background.FillNode(now, &a.node)
		a.background.Hurry(a.manager.Ready(now).DisksShort)
	}
	a.blindFor(now)
	a.searchKubelet(now)
	a.ready = a.manager.Ready(now)
	near := a.ready.Near >= eviction.NearShort
	a.holdOn(now, a.ready.Met)
	a.growth.watch(now, a.Reader, near)
	a.keepUp(now)
	a.watchCgroups(now)
	a.trim(now)
	if near { // so that all is at hand when one has to be chosen
		a.summary.Node = a.node
		_ = a.readVictims(now) // a decision says what is wrong
	}
}

// keepUp has the runtime listed when there is something to learn: a pod that only the kernel knows, or a shortage near.
func (a *agent) keepUp(now time.Time) {
	near := a.manager.Ready(now).Near >= eviction.NearShort
	if a.synced && !near && now.Sub(a.counted) < countTold { // the runtime tells
		return
	}
	a.counted = now
	here, ask := map[string]int{}, false
	a.Reader.Strangers(a.pods, func(uid string) {
		here[uid] = a.asked[uid]
		if here[uid] < asks {
			here[uid]++
			ask = true
		}
	})
	a.asked = here
	if ask || near {
		a.watcher.ask()
	}
}

// countTold is between two searches of the hierarchy for pods that nobody told of, where the runtime tells of its pods.
const countTold = 10 * time.Second

// trim gives memory that the heap does not need back to the kernel, while nothing is short: soon after a list, or a pass of garbage
// collection, which are what takes most of it for a moment, and now and then without one.
func (a *agent) trim(now time.Time) {
	since := now.Sub(a.trimmed)
	if since < trimSoonest || !a.untrimmed && since < trimEvery || a.manager.Ready(now).Near >= eviction.Enough || len(a.underway) > 0 {
		return
	}
	a.trimmed, a.untrimmed = now, false
	a.evictions.Go(debug.FreeOSMemory)
}

// Between two calls of it: after a list or a pass, and without.
const (
	trimSoonest = 10 * time.Second
	trimEvery   = time.Minute
)

// blindFor logs once that a signal which some threshold is for has not been observed for so long that it counts as lost (a file
// system that hangs, a runtime that does not tell where its images are), and once that it is observed again.
func (a *agent) blindFor(now time.Time) {
	lost := map[string]bool{}
	for _, l := range a.manager.Lost(now) {
		source := "signal " + string(l.Signal)
		lost[source] = true
		if a.blind[source] == "" {
			a.blind[source] = l.Reason
			a.log.Warn("the signal is not observed: its thresholds do nothing", "signal", l.Signal, "reason", l.Reason)
		}
	}
	for source := range a.blind {
		if signal, ok := strings.CutPrefix(source, "signal "); ok && !lost[source] {
			delete(a.blind, source)
			a.log.Info("the signal is observed again", "signal", signal)
		}
	}
}

// readable logs once that a source cannot be read, and once that it can be again.
func (a *agent) readable(source string, err error) {
	before := a.blind[source]
	switch {
	case err == nil && before != "":
		a.log.Info("everything is read again", "source", source)
		delete(a.blind, source)
	case err != nil && before != err.Error():
		a.log.Error("cannot read the node's "+source, "error", err)
		a.blind[source] = err.Error()
	}
}
