package agent

import (
	"context"
	"time"

	"jettison/eviction"
	"jettison/internal/agent/pace"
	"jettison/internal/agent/squeeze"
	"jettison/internal/node/records"
	"jettison/reclaim"
	"jettison/stats"
)

// look is one cheap look and what follows from it, in the order that eviction.Ready has.
func (l *loop) look(ctx context.Context, now time.Time) {
	l.looks.Begin(now)
	ready := l.measure(now)
	begun := false
	if ready.HardMet {
		l.relief.memory.Stop()
	}
	if ready.Look == eviction.LookMemory {
		begun = l.decide(ctx, now, eviction.LookMemory, &ready)
		ready = l.manager.Ready(now)
	}
	if ready.HardMet {
		l.upkeep.trial.Stop()
	}
	l.shown.conditions(now, l.log, ready.Conditions, ready.Met)
	newlyMet := l.recording.NewlyMet(ready.Met)
	l.reported(now, &ready)
	if !begun && ready.Look == eviction.LookFull {
		l.consider(ctx, &ready)
		ready = l.manager.Ready(now)
	}
	if !ready.Evicting && !l.o.DryRun {
		l.relief.memory.Tick(now, l.pods.All(), l.looks.Reader().Self())
	}
	if newlyMet {
		_ = l.lookAtVictims(now) // what is wrong was logged, or will be
		l.record(now, eviction.LookMemory, true)
	}
	l.relief.disk.EvictionsFirst(ready.Evicting)
	l.save(now)
}

// measure is the cheap look at the node, and what the manager says of it.
func (l *loop) measure(now time.Time) eviction.Ready {
	n := l.looks.Cheap(now, l.manager.LooksShort)
	ready := l.manager.Observe(now, n, eviction.Situation{
		ObserveDisks: l.observeDisks(), Limited: l.objects.Limited() &&
			l.o.Config.LocalStorageCapacityIsolation, Recording: l.recording.On(),
	})
	l.pace.Observe(&ready)
	return ready
}

// stillMet reports whether a threshold is met by a measurement made now. Another one for the same
// signal, softer, may well be.
func (l *loop) stillMet(t eviction.Threshold) bool {
	ready := l.measure(time.Now())
	return ready.Meets(&t)
}

// reported has evictions logged whose effect is known, and recorded.
func (l *loop) reported(now time.Time, ready *eviction.Ready) {
	if len(ready.Outcomes)+len(ready.Finished) == 0 {
		return
	}
	reported := l.evictions.OnReady(now, ready)
	l.manager.Advance()
	l.shown.changed() // the records of what is over, too
	if reported {
		l.evictions.Advise(l.hardBytes())
		if l.recording.On() {
			_ = l.lookAtVictims(now) // the effect; what is wrong is logged by decisions
			l.record(now, eviction.LookMemory, true)
		}
	}
}

// onTick is what is done once a second: the signals that change slowly, and whatever the runtime
// should be asked.
func (l *loop) onTick(ctx context.Context, now time.Time) {
	ready := l.manager.Ready(now)
	l.looks.Slow(now, ready.DisksShort)
	l.looks.UpdateLost(l.manager.Lost(now))
	l.kubelet.Tick(now)
	l.upkeep.unknown.Tick(now)
	l.holdOn(now, ready.Met)
	if len(l.manager.Lives()) > 0 {
		l.gate.admission.Changed()
	}
	near := ready.Near >= eviction.NearShort
	heldUp := l.looks.Reader().Refresh(l.pods.All())
	l.pods.RequestIfNeeded(now, near, l.looks.Reader().Strangers)
	if !heldUp { // these look up names in cgroups, too: a tick later will do
		l.looks.RecordUsage(now, near)
		l.wakes.Tick(now, l.looks.Reader().EachPod)
	}
	calm := len(l.manager.Lives()) == 0
	if calm && ready.Near < eviction.Enough {
		l.upkeep.trim.Tick(now)
	}
	if near { // so that all is at hand when a victim has to be chosen
		_ = l.lookAtVictims(now) // a decision says what is wrong
	}
	l.limit(ctx, now)
	if !l.kubelet.Found() {
		l.upkeep.rotation.Tick(ctx, now, l.pods.All())
	}
	if calm && !shortOfMore(ready.Met) {
		l.upkeep.trial.Tick(ctx)
	}
	l.deschedule(ctx, now, ready.Met)
}

// limit keeps what is written to cgroups as it should be: the agent's own first, which pods' is
// added to.
func (l *loop) limit(ctx context.Context, now time.Time) {
	kubelet := l.kubelet.Found()
	l.upkeep.own.tick(kubelet, l.upkeep.limits.Protects())
	l.upkeep.limits.Tick(ctx, now, kubelet, l.pods.All())
}

// shortOfMore: something that processes take is short. A disk may stay short for days.
func shortOfMore(met []eviction.Met) bool {
	for i := range met {
		if !met[i].Disk() {
			return true
		}
	}
	return false
}

// holdOn keeps evicted pods out while they die, and while what they were evicted for is short.
func (l *loop) holdOn(now time.Time, met []eviction.Met) {
	changed := false
	for _, life := range l.manager.Lives() {
		if e := life.Eviction(); life.Leaving() {
			changed = l.gate.ExtendDying(now, e.Pod.PodRef.UID, e.Message) || changed
		}
	}
	if l.gate.ExtendLasting(now, met) || changed {
		l.evictions.Changed()
	}
}

// save hands over what the next process needs, if that has changed.
func (l *loop) save(now time.Time) {
	if l.manager.Unsaved() {
		l.evictions.Changed()
	}
	l.evictions.Save(now, func(s *records.State) {
		s.Manager, s.HoldOffs = l.manager.Save(), l.gate.Save(now)
	})
}

// need is how the node stands by the i-th signal that memory is reclaimed for.
func (l *loop) need(now time.Time, i int) reclaim.MemoryNeed {
	need := l.manager.Need(now, squeeze.Signals[i])
	return reclaim.MemoryNeed{
		Available: need.Available, Hard: need.Hard, Soft: need.Soft, Grace: need.Grace,
		Margin: need.Margin, Fill: l.pace.Trend(i),
	}
}

// swap is what is free of it, and what a threshold for it keeps.
func (l *loop) swap() (free stats.Opt[uint64], keep uint64) {
	return l.looks.Node().Swap.FreeBytes, l.manager.Need(time.Now(), squeeze.Signals[0]).SwapKeep
}

// available is what there is of a signal, memory on per-CPU lists included.
func (l *loop) available(signal stats.Signal) stats.Opt[uint64] {
	o := l.manager.Observed(signal)
	if signal == stats.SignalMemoryAvailable {
		n := l.looks.WithPerCPU()
		o = l.manager.Memory(&n)
	}
	return stats.Opt[uint64]{V: o.Value, OK: o.OK}
}

// hardBytes is the hard threshold of memory.available on this node; 0: none.
func (l *loop) hardBytes() uint64 {
	return l.manager.HardBytes(
		l.looks.Node().Memory.CapacityBytes.V)
}

// tryOut finds out which rungs of the kill ladder work here, on processes of the agent's own, and
// how long a look and a kill take.
func (l *loop) tryOut(ctx context.Context) {
	start := time.Now()
	l.warmUp(start)
	l.evictions.RecordReaction(pace.MinInterval + time.Since(start))
	if l.o.DryRun {
		return
	}
	ready := l.manager.Ready(time.Now())
	if report, made := l.upkeep.trial.AtStart(ctx, ready.HardMet); made {
		l.onTested(&report)
	}
}

// warmUp looks at the node and its pods as a decision does.
func (l *loop) warmUp(now time.Time) {
	l.measure(now)
	_ = l.lookAtVictims(now) // a decision says what is wrong
}
