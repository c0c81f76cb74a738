package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/agent/evictions"
	"jettison/internal/node/frames"
)

// nameWait is the time that a kill waits for the runtime to name a pod that only the kernel
// knows.
const nameWait = 50 * time.Millisecond

// consider makes the full look at pods, when it is worth its cost and the quick look chose no pod.
func (l *loop) consider(ctx context.Context, ready *eviction.Ready) {
	recorded := l.decide(ctx, time.Now(), eviction.LookFull, ready)
	if ready.Periodic && !recorded {
		l.record(time.Now(), eviction.LookFull, false)
	}
}

// decide looks at every pod, makes a decision and carries it out. For a look at memory it returns
// whether an eviction began; for a full one whether the look was recorded because a pod was chosen.
// From the measurement that finds a hard threshold met to the kill, nothing is logged, requested or
// allocated, unless the runtime has not listed one of the pods.
func (l *loop) decide(ctx context.Context, now time.Time, look eviction.Look,
	ready *eviction.Ready) bool {
	d, now, err := l.choose(ctx, now, look, ready)
	begun := l.evictions.OnDecided(ctx, &d)
	if l.evictions.Missed() && !begun && look == eviction.LookMemory { // try the next one now
		d, now, err = l.choose(ctx, time.Now(), look, ready)
		begun = l.evictions.OnDecided(ctx, &d)
	}
	// The kill could not wait for this:
	if err != nil {
		l.log.Repeat("reading pods: "+err.Error(),
			//log: The resource usage of some pods could not be read. They are ranked without it.
			//do: Nothing if it is rare: a pod may have ended meanwhile. Otherwise see the key error.
			func() { l.log.Warn("some pods could not be measured", api.EventSource.Attr(), "error", err) })
	}
	l.publisher.logConditions(now, l.log, d.Conditions, d.Met)
	l.publisher.logBreaker(l.log, &d)
	chosen := len(d.Evictions) > 0
	if chosen {
		l.record(now, look, true)
		l.publisher.markChanged()
	} else {
		l.logNoEviction(&d)
	}
	if look == eviction.LookMemory {
		return begun
	}
	return chosen
}

// choose looks at every pod and decides. It allocates nothing if a quick look determines the
// victim.
func (l *loop) choose(ctx context.Context, now time.Time, look eviction.Look,
	ready *eviction.Ready) (eviction.Decision, time.Time, error) {
	// requested first, so that the measurements are not older than the look
	measuring := look == eviction.LookFull && l.requestDisks(ready)
	err := l.readPods(now, look)
	if l.pods.HasUnlisted(l.looks.Summary()) {
		l.listNow(ctx)
		now = time.Now()
		err = l.readPods(now, look)
	}
	in := eviction.Input{
		Summary: l.looks.Summary(), Pods: l.objects.Pods(), ObserveDisks: l.observeDisks(),
		MemoryOnly: look == eviction.LookMemory,
		Measuring:  measuring, Terse: look == eviction.LookMemory,
	}
	if ready.NeedsGrowth { // there is time to look for growing cgroups
		in.Growing = l.looks.Growth()
	}
	d := l.manager.Step(now, in)
	// the threshold was not met before the step
	if len(d.Evictions) == 1 && d.Evictions[0].Inexact() {
		now = time.Now()
		err = errors.Join(err, l.looks.Memory(now, l.pods.All()))
		d = l.manager.Step(now, in)
	}
	if len(d.Reclaim) > 0 && len(d.Evictions) == 0 && !l.relieve(now, &d) {
		// garbage was collected, or cannot be: the present look decides
		d = l.manager.StepAfterReclaim(now, in)
	}
	l.dropDiskVictims(&d)
	return d, now, err
}

func (l *loop) readPods(now time.Time, look eviction.Look) error {
	if look == eviction.LookMemory {
		return l.readVictims(now)
	}
	return l.looks.Pods(now, l.pods.All())
}

func (l *loop) readVictims(now time.Time) error {
	return l.looks.Victims(now, l.pods.All(), l.objects.Pods(), l.manager)
}

// requestDisks reports whether the pods' usage of a short disk has to be measured again, and
// requests that. Incomplete measurements are repeated without waiting for them.
func (l *loop) requestDisks(ready *eviction.Ready) bool {
	b, since := l.looks.Background(), ready.DiskMeasuredSince
	if b == nil {
		return false
	}
	b.Finish(ready.DiskWalkedSince)
	if since.IsZero() || b.Fresh(since) {
		return false
	}
	b.Demand(since)
	return true
}

// listNow requests a list and waits a moment for it.
func (l *loop) listNow(ctx context.Context) {
	select {
	case u := <-l.pods.Updates(): // an older answer, not the requested one
		l.onListed(u)
	default:
	}
	select {
	case u := <-l.gate.Updates(): // events may already contain the pod
		l.onEvents(u)
	default:
	}
	l.pods.Ask()
	timer := time.NewTimer(nameWait)
	defer timer.Stop()
	select {
	case u := <-l.pods.Updates():
		l.onListed(u)
	case <-timer.C:
	case <-ctx.Done():
	}
}

// relieve starts garbage collection before an eviction for a disk. It returns false if that was
// tried or is not possible, or if the disk is nearly full: then the present look decides.
func (l *loop) relieve(now time.Time, d *eviction.Decision) (waits bool) {
	if !l.relief.disk.Acts() {
		return false
	}
	next := l.manager.Relief(now, d)
	switch next {
	case eviction.ReliefBegin, eviction.ReliefBeginNow:
		//log: A disk is short. The agent collects garbage first, and evicts a pod only if that does not
		//  suffice.
		l.log.Info("garbage collection before eviction", append(evictions.SignalFields(d.Met[0]),
			api.EventGarbage.Attr())...)
		l.relief.disk.Relieve(d.Reclaim)
		return next == eviction.ReliefBegin
	case eviction.ReliefWait:
		return true
	}
	return false
}

// dropDiskVictims checks for a kubelet before an eviction for a disk, because a minute-old result
// could cost the pod its files. With a kubelet no pod is evicted for a disk.
func (l *loop) dropDiskVictims(d *eviction.Decision) {
	if !slices.ContainsFunc(d.Evictions, func(e eviction.Eviction) bool { return e.Disk() }) {
		return
	}
	l.kubelet.LookNow()
	if l.observeDisks() {
		d.Evictions, d.Reason = nil, "a kubelet started on this node"
	}
}

// observeDisks reports whether disk signals only set conditions.
func (l *loop) observeDisks() bool { return !l.o.Config.Disk.Acts(l.kubelet.Found()) }

// diskMode returns the mode of disk signals.
func (l *loop) diskMode() string { return string(l.o.Config.Disk.Resolve(l.kubelet.Found())) }

// logNoEviction logs why a met threshold leads to no eviction.
func (l *loop) logNoEviction(d *eviction.Decision) {
	if d.Signal.Threshold.Signal == "" {
		return
	}
	key := "no eviction: " + d.Reason
	if d.BreakerOpen { // the reason contains figures that change with each look
		key = "stopped: " + string(d.Signal.Threshold.Signal)
	} else if d.Unexplained {
		key = "unexplained: " + string(d.Signal.Threshold.Signal)
	}
	l.log.Repeat(key, func() {
		//log: A threshold is met, but the agent evicts no pod. The key reason gives the cause.
		//do: See the key reason. If all pods are protected, the threshold needs other measures, such as
		//  fewer pods.
		l.log.Warn("threshold met without eviction", append(evictions.SignalFields(d.Signal),
			api.EventCondition.Attr(), "reason", d.Reason,
			"protected", len(d.Protected))...)
	})
}

// record writes the last look at pods to the recording. extra: in addition to the regular frames.
func (l *loop) record(now time.Time, look eviction.Look, extra bool) {
	if !l.recording.On() {
		return
	}
	l.recording.Record(frames.Input{
		Time: now, Summary: l.looks.Summary(), Pods: l.objects.All(),
		MemoryOnly: look == eviction.LookMemory, ObserveDisks: l.observeDisks(),
	}, extra)
}
