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

// unannounced is how long a kill waits for the runtime to name a pod that only the kernel knows.
const unannounced = 50 * time.Millisecond

// consider makes the full look at pods: it is worth it now, and no pod was found by the quick one.
func (l *loop) consider(ctx context.Context, ready *eviction.Ready) {
	recorded := l.decide(ctx, time.Now(), eviction.LookFull, ready)
	if ready.Periodic && !recorded {
		l.record(time.Now(), eviction.LookFull, false)
	}
}

// decide looks at every pod, takes a step, and carries out what is decided. Of a look at memory it
// says whether an eviction was begun, of a full one whether the look has a frame, for a pod was
// chosen. From the measurement that finds a hard threshold met to the kill nothing is logged, asked
// or allocated, unless there is a pod that the runtime has not told of.
func (l *loop) decide(ctx context.Context, now time.Time, look eviction.Look,
	ready *eviction.Ready) bool {
	d, now, err := l.choose(ctx, now, look, ready)
	begun := l.evictions.OnDecided(ctx, &d)
	if l.evictions.Missed() && !begun && look == eviction.LookMemory { // the next one, at once
		d, now, err = l.choose(ctx, time.Now(), look, ready)
		begun = l.evictions.OnDecided(ctx, &d)
	}
	// After the kill, which cannot wait:
	if err != nil {
		l.log.Repeat("reading pods: "+err.Error(),
			func() { l.log.Warn("some pods could not be measured", api.EventSource.Attr(), "error", err) })
	}
	l.shown.conditions(now, l.log, d.Conditions, d.Met)
	l.shown.breaker(l.log, &d)
	chosen := len(d.Evictions) > 0
	if chosen {
		l.record(now, look, true)
		l.shown.changed()
	} else {
		l.noEviction(&d)
	}
	if look == eviction.LookMemory {
		return begun
	}
	return chosen
}

// choose looks at every pod and decides. Of a quick look whose victim is clear it allocates
// nothing.
func (l *loop) choose(ctx context.Context, now time.Time, look eviction.Look,
	ready *eviction.Ready) (eviction.Decision, time.Time, error) {
	// asked first: what is looked at then is no older than that
	measuring := look == eviction.LookFull && l.measuring(ready)
	err := l.lookAtPods(now, look)
	if l.pods.HasUnlisted(l.looks.Summary()) {
		l.askRuntime(ctx)
		now = time.Now()
		err = l.lookAtPods(now, look)
	}
	in := eviction.Input{
		Summary: l.looks.Summary(), Pods: l.objects.Pods(), ObserveDisks: l.observeDisks(),
		MemoryOnly: look == eviction.LookMemory,
		Measuring:  measuring, Terse: look == eviction.LookMemory,
	}
	if ready.Growth { // nothing is to be lost by looking what grows
		in.Growing = l.looks.Growth()
	}
	d := l.manager.Step(now, in)
	// a threshold that was not met before the step
	if len(d.Evictions) == 1 && d.Evictions[0].Inexact() {
		now = time.Now()
		err = errors.Join(err, l.looks.Memory(now, l.pods.All()))
		d = l.manager.Step(now, in)
	}
	if len(d.Reclaim) > 0 && len(d.Evictions) == 0 && !l.relieve(now, &d) {
		// it was collected, or nothing can be: the look that there is decides
		d = l.manager.Reclaimed(now, in)
	}
	l.spare(&d)
	return d, now, err
}

func (l *loop) lookAtPods(now time.Time, look eviction.Look) error {
	if look == eviction.LookMemory {
		return l.lookAtVictims(now)
	}
	return l.looks.Pods(now, l.pods.All())
}

func (l *loop) lookAtVictims(now time.Time) error {
	return l.looks.Victims(now, l.pods.All(), l.objects.Pods(), l.manager)
}

// measuring: what pods take of a disk that is short is not known as of then. It is measured anew.
// Walks that were cut off are made again, but not waited for.
func (l *loop) measuring(ready *eviction.Ready) bool {
	b, since := l.looks.Background(), ready.DiskFresh
	if b == nil {
		return false
	}
	b.Finish(ready.DiskWhole)
	if since.IsZero() || b.Fresh(since) {
		return false
	}
	b.Demand(since)
	return true
}

// askRuntime has the runtime listed now and waits a moment for its answer.
func (l *loop) askRuntime(ctx context.Context) {
	select {
	case u := <-l.pods.Updates(): // an older answer, which must not be taken for the one to come
		l.onListed(u)
	default:
	}
	select {
	case u := <-l.gate.Updates(): // the runtime has told of it already
		l.onTold(u)
	default:
	}
	l.pods.Ask()
	timer := time.NewTimer(unannounced)
	defer timer.Stop()
	select {
	case u := <-l.pods.Updates():
		l.onListed(u)
	case <-timer.C:
	case <-ctx.Done():
	}
}

// relieve has garbage collected before a pod goes for a disk. false: that was tried, or cannot be;
// the look that there is decides.
func (l *loop) relieve(now time.Time, d *eviction.Decision) (waits bool) {
	if !l.relief.disk.Acts() {
		return false
	}
	switch l.manager.Relief(now, d) {
	case eviction.ReliefBegin:
		l.log.Info("collecting garbage before a pod is evicted", append(evictions.SignalFields(d.Met[0]),
			api.EventGarbage.Attr())...)
		l.relief.disk.Relieve(d.Reclaim)
		return true
	case eviction.ReliefWait:
		return true
	}
	return false
}

// spare looks for a kubelet before a pod is evicted for what it takes of a disk: its files may be
// at stake, so that what was found a minute ago does not do. Beside one, none is.
func (l *loop) spare(d *eviction.Decision) {
	if !slices.ContainsFunc(d.Evictions, func(e eviction.Eviction) bool { return e.Disk() }) {
		return
	}
	l.kubelet.LookNow()
	if l.observeDisks() {
		d.Evictions, d.Reason = nil, "a kubelet is there now"
	}
}

// observeDisks: disk signals only set conditions.
func (l *loop) observeDisks() bool { return !l.o.Config.Disk.Acts(l.kubelet.Found()) }

// diskMode is what disk signals do, in words.
func (l *loop) diskMode() string { return string(l.o.Config.Disk.Resolve(l.kubelet.Found())) }

// noEviction logs why a threshold gets no victim.
func (l *loop) noEviction(d *eviction.Decision) {
	if d.Signal.Threshold.Signal == "" {
		return
	}
	key := "no eviction: " + d.Reason
	if d.Stopped { // the reason has figures that grow from look to look
		key = "stopped: " + string(d.Signal.Threshold.Signal)
	} else if d.Unexplained {
		key = "unexplained: " + string(d.Signal.Threshold.Signal)
	}
	l.log.Repeat(key, func() {
		l.log.Warn("no eviction", append(evictions.SignalFields(d.Signal), api.EventCondition.Attr(),
			"reason", d.Reason,
			"protected", len(d.Protected))...)
	})
}

// record has the last look at pods recorded. extra: it was not the regular one.
func (l *loop) record(now time.Time, look eviction.Look, extra bool) {
	if !l.recording.On() {
		return
	}
	l.recording.Record(frames.Look{
		Time: now, Summary: l.looks.Summary(), Pods: l.objects.All(),
		MemoryOnly: look == eviction.LookMemory, ObserveDisks: l.observeDisks(),
	}, extra)
}
