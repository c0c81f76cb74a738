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

// look makes one cheap look and handles its results, in the order that eviction.Ready prescribes.
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
	l.publisher.logConditions(now, l.log, ready.Conditions, ready.Met)
	newlyMet := l.recording.NewlyMet(ready.Met)
	l.reportOutcomes(now, &ready)
	if !begun && ready.Look == eviction.LookFull {
		l.consider(ctx, &ready)
		ready = l.manager.Ready(now)
	}
	if !ready.Evicting && !l.o.DryRun {
		l.relief.memory.Tick(now, l.pods.All(), l.looks.Reader().Self())
	}
	if newlyMet {
		_ = l.readVictims(now) // decisions log the error
		l.record(now, eviction.LookMemory, true)
	}
	l.relief.disk.EvictionsFirst(ready.Evicting)
	l.save(now)
}

// measure makes the cheap look at the node, and passes it to the manager.
func (l *loop) measure(now time.Time) eviction.Ready {
	n := l.looks.Cheap(now, l.manager.LooksShort)
	ready := l.manager.Observe(now, n, eviction.Situation{
		ObserveDisks: l.observeDisks(), Limited: l.objects.Limited() &&
			l.o.Config.LocalStorageCapacityIsolation, Recording: l.recording.On(),
	})
	l.pace.Observe(&ready)
	return ready
}

// stillMet measures now and reports whether a threshold is met. A softer threshold for the same
// signal does not count.
func (l *loop) stillMet(t eviction.Threshold) bool {
	ready := l.measure(time.Now())
	return ready.Meets(&t)
}

// reportOutcomes logs and records evictions with a known outcome.
func (l *loop) reportOutcomes(now time.Time, ready *eviction.Ready) {
	if len(ready.Outcomes)+len(ready.Finished) == 0 {
		return
	}
	reported := l.evictions.OnReady(now, ready)
	l.manager.Acknowledge()
	l.publisher.markChanged() // also for the records of finished evictions
	if reported {
		l.evictions.Advise(l.hardBytes())
		if l.recording.On() {
			_ = l.readVictims(now) // the effect; decisions log the error
			l.record(now, eviction.LookMemory, true)
		}
	}
}

// onTick does the work of each second: signals that change slowly, and requests to the runtime.
func (l *loop) onTick(ctx context.Context, now time.Time) {
	ready := l.manager.Ready(now)
	l.looks.Slow(now, ready.DisksShort)
	l.looks.UpdateLost(l.manager.Lost(now))
	l.kubelet.Tick(now)
	l.upkeep.unknown.Tick(now)
	l.extendHoldOffs(now, ready.Met)
	if len(l.manager.Lives()) > 0 {
		l.gate.admission.Changed()
	}
	near := ready.Near >= eviction.NearShort
	heldUp := l.looks.Reader().Refresh(l.pods.All())
	l.pods.Reread(now, l.contradicted)
	l.pods.RequestIfNeeded(now, near, l.looks.Reader().UnannouncedPods)
	if !heldUp { // these read cgroups, too: the next tick is early enough
		l.looks.RecordUsage(now, near)
		l.wakes.Tick(now, l.looks.Reader().EachPod)
	}
	calm := len(l.manager.Lives()) == 0
	if calm && ready.Near < eviction.Enough {
		l.upkeep.trim.Tick(now)
	}
	if near {
		l.rehearse(now)
	}
	l.updateLimits(ctx, now)
	if !l.kubelet.Found() {
		l.upkeep.rotation.Tick(ctx, now, l.pods.All())
	}
	if calm && !processesShort(ready.Met) {
		l.upkeep.trial.Tick(ctx, now)
	}
	l.deschedule(ctx, now, ready.Met)
}

// contradicted visits the UIDs of pods whose object requests more memory than the runtime reported at
// the last look at pods.
func (l *loop) contradicted(visit func(uid string)) {
	objects, s := l.objects.Pods(), l.looks.Summary()
	for i := range s.Pods {
		p := &s.Pods[i]
		if o := objects[p.PodRef.UID]; o != nil && o.ExceedsRuntime(p) {
			visit(p.PodRef.UID)
		}
	}
}

// updateLimits updates the settings in cgroups: first the agent's own, which the pods' settings add
// to.
func (l *loop) updateLimits(ctx context.Context, now time.Time) {
	kubelet := l.kubelet.Found()
	if l.upkeep.own.tick(kubelet, l.upkeep.limits.Protects()) {
		return
	}
	l.upkeep.limits.Tick(ctx, now, kubelet, l.pods.All())
}

// processesShort reports whether a resource of processes is short. A disk may stay short for days.
func processesShort(met []eviction.Met) bool {
	for i := range met {
		if !met[i].Disk() {
			return true
		}
	}
	return false
}

// extendHoldOffs extends the hold-offs of evicted pods while they die, and while the resource is
// short.
func (l *loop) extendHoldOffs(now time.Time, met []eviction.Met) {
	changed := false
	for _, life := range l.manager.Lives() {
		if e := life.Eviction(); life.CleaningUp() {
			changed = l.gate.ExtendDying(now, e.Pod.PodRef.UID, e.Message) || changed
		}
	}
	if l.gate.ExtendLasting(now, met) || changed {
		l.evictions.Changed()
	}
}

// save stores the state that the next process needs, if it changed.
func (l *loop) save(now time.Time) {
	if l.manager.NeedsSave() {
		l.evictions.Changed()
	}
	l.evictions.Save(now, func(s *records.State) {
		s.Manager, s.HoldOffs = l.manager.Save(), l.gate.Save(now)
		s.Descheduled = l.upkeep.deschedule.Save()
	})
}

// need returns the node's need by the i-th signal of proactive reclaim.
func (l *loop) need(now time.Time, i int) reclaim.MemoryNeed {
	need := l.manager.Need(now, squeeze.Signals[i])
	return reclaim.MemoryNeed{
		Available: need.Available, Hard: need.Hard, Soft: need.Soft, Grace: need.Grace,
		Margin: need.Margin, Fill: l.pace.Trend(i),
	}
}

// swap returns the free swap, and the amount that a threshold for it keeps free.
func (l *loop) swap() (free stats.Opt[uint64], keep uint64) {
	return l.looks.Node().Swap.FreeBytes, l.manager.Need(time.Now(), squeeze.Signals[0]).SwapKeep
}

// available returns the value of a signal, including memory on per-CPU lists.
func (l *loop) available(signal stats.Signal) stats.Opt[uint64] {
	o := l.manager.Observed(signal)
	if signal == stats.SignalMemoryAvailable {
		n := l.looks.WithPerCPU()
		o = l.manager.Memory(&n)
	}
	return stats.Opt[uint64]{V: o.Value, OK: o.OK}
}

// hardBytes returns the hard threshold of memory.available on this node; 0 if none.
func (l *loop) hardBytes() uint64 {
	memory := l.looks.Node().Memory
	return l.manager.HardBytes(memory.Ordinary().V)
}

// selfTest runs the self-test of the kill ladder on processes of the agent's own, and measures the
// duration of a look and a kill.
func (l *loop) selfTest(ctx context.Context) {
	start := time.Now()
	l.warmUp(start)
	l.evictions.RecordReaction(pace.MinInterval + time.Since(start))
	if l.o.DryRun {
		return
	}
	ready := l.manager.Ready(time.Now())
	if report, made := l.upkeep.trial.AtStart(ctx, time.Now(), ready.HardMet); made {
		l.onTested(&report)
	}
}

// warmUp looks at the node and its pods as a decision does.
func (l *loop) warmUp(now time.Time) {
	l.measure(now)
	l.rehearse(now)
}

// rehearse reads and ranks the pods as a decision does, so that everything is cached, and memory is
// allocated, when a victim must be chosen.
func (l *loop) rehearse(now time.Time) {
	_ = l.readVictims(now) // decisions log the error
	l.manager.Rehearse(now, eviction.Input{Summary: l.looks.Summary(), Pods: l.objects.Pods(),
		MemoryOnly: true})
}
