package agent

import (
	"context"
	"runtime/debug"
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
		if hard(met) {
			a.stopSqueezing()
		}
		begun = a.rush(ctx, now)
		met = a.manager.Met() // of the last measurement
		if hard(met) {
			a.breakOff()
		}
	}
	a.conditionsChanged(now, met)
	a.progress(now, met)
	if !begun && (len(met) > 0 || now.Sub(a.lastFull) >= period) {
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
	if a.manager.Near(&a.node, 1) {
		a.Reader.PerCPU(&a.node)
	}
	if a.node.Allocatable.LimitBytes.OK { // the slow look finds out whether there is a limit
		a.readable("pods' cgroup", a.Reader.Allocatable(now, &a.node.Allocatable))
	}
	if a.watchesTasks() {
		a.readable("tasks", a.Reader.PIDs(now, &a.node.PIDs))
	}
	met := a.manager.Observe(now, &a.node)
	for i, signal := range quick {
		a.paces[i].see(a.manager.Observed(signal))
	}
	return met
}

// watchesTasks: a fork bomb is through in less than a second.
func (a *agent) watchesTasks() bool {
	for i := range a.o.Config.Thresholds {
		if a.o.Config.Thresholds[i].Signal == stats.SignalPIDAvailable {
			return true
		}
	}
	return false
}

// slow is what is done once a second: the signals that change slowly, and whatever the runtime should be asked.
func (a *agent) slow(now time.Time) {
	a.readable("node", a.Reader.Slow(now, &a.node))
	if a.background != nil {
		a.background.FillNode(now, &a.node)
		a.background.Hurry(!a.observeDisks() && a.shortOf(stats.SignalNodeFsAvailable, stats.SignalNodeFsInodesFree, stats.SignalImageFsAvailable, stats.SignalImageFsInodesFree))
	}
	a.blindFor(now)
	a.searchKubelet(now)
	a.holdOn(now, a.manager.Met())
	a.growth.watch(now, a.Reader, a.manager.Near(&a.node, nearThreshold))
	a.keepUp(now)
	a.watchCgroups(now)
	a.trim(now)
	if a.manager.Near(&a.node, nearThreshold) { // so that all is at hand when one has to be chosen
		a.summary.Node = a.node
		_ = a.readVictims(now) // a decision says what is wrong
	}
}

// shortOf reports whether less than nearThreshold times a threshold is left of one of the signals.
func (a *agent) shortOf(signals ...stats.Signal) bool {
	for i := range a.o.Config.Thresholds {
		t := &a.o.Config.Thresholds[i]
		for _, s := range signals {
			if o := a.manager.Observed(s); t.Signal == s && o.OK && o.Value/nearThreshold < t.Value.Of(o.Capacity) {
				return true
			}
		}
	}
	return false
}

// keepUp has the runtime listed when there is something to learn: a pod that only the kernel knows, or a shortage near.
func (a *agent) keepUp(now time.Time) {
	near := a.manager.Near(&a.node, nearThreshold)
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
	if since < trimSoonest || !a.untrimmed && since < trimEvery || a.manager.Near(&a.node, plenty) || len(a.underway) > 0 {
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
	for i := range a.o.Config.Thresholds {
		signal := a.o.Config.Thresholds[i].Signal
		o := a.manager.Observed(signal)
		since, absent := a.unseen[signal]
		switch source := "signal " + string(signal); {
		case o.OK || o.Gone || signal == stats.SignalAllocatableMemoryAvailable: // whose cgroup comes with the first pod
			delete(a.unseen, signal)
			if a.blind[source] != "" {
				delete(a.blind, source)
				a.log.Info("the signal is observed again", "signal", signal)
			}
		case !absent:
			a.unseen[signal] = now
		case now.Sub(since) >= stats.MaxAge && a.blind[source] == "":
			a.blind[source] = o.Reason
			a.log.Warn("the signal is not observed: its thresholds do nothing", "signal", signal, "reason", o.Reason)
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
