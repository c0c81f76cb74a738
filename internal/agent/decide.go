package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"jettison/eviction"
)

// The two looks at pods, as indices of fruitless.
const (
	memoryLook = iota
	fullLook
)

// situation is what decides whether a look is worth its price.
func (a *agent) situation() eviction.Situation {
	return eviction.Situation{ObserveDisks: a.observeDisks(), Limited: a.limited, Recording: a.recorder != nil}
}

// rush serves hard thresholds for memory and tasks, before anything else is done.
func (a *agent) rush(ctx context.Context, now time.Time) (begun bool) {
	if a.ready.Look != eviction.LookMemory {
		return false
	}
	begun, _ = a.decide(ctx, now, memoryLook)
	return begun
}

// consider makes the full look at pods where it is worth it now: nobody was found by the quick one.
func (a *agent) consider(ctx context.Context, now time.Time) {
	if r := a.manager.Ready(now); r.Look == eviction.LookFull {
		_, recorded := a.decide(ctx, time.Now(), fullLook)
		if r.Periodic && !recorded {
			a.record(time.Now(), fullLook, false)
		}
	}
}

// decide looks at every pod, takes a step, and carries out what is decided. recorded: the look has a frame, for somebody was chosen.
func (a *agent) decide(ctx context.Context, now time.Time, look int) (begun, recorded bool) {
	d, now, err := a.choose(ctx, now, look)
	begun = a.evictAll(ctx, &d)
	if a.missed && !begun && look == memoryLook { // the next one, at once
		d, now, err = a.choose(ctx, time.Now(), look)
		begun = a.evictAll(ctx, &d)
	}
	// After the kill, which cannot wait:
	if err != nil {
		a.repeat("reading pods: "+err.Error(), func() { a.log.Warn("some pods could not be measured", "error", err) })
	}
	a.conditionsChanged(now, d.Met)
	a.breaker(&d)
	if len(d.Evictions) == 0 {
		a.nobody(&d)
		return false, false
	}
	a.record(now, look, true)
	return begun, true
}

func (a *agent) evictAll(ctx context.Context, d *eviction.Decision) (begun bool) {
	a.missed = false
	for i := range d.Evictions {
		begun = a.evict(ctx, d, i) || begun
	}
	return begun
}

// choose looks at every pod and decides. Of a quick look whose victim is clear it allocates nothing.
func (a *agent) choose(ctx context.Context, now time.Time, look int) (eviction.Decision, time.Time, error) {
	err := a.lookAtPods(now, look)
	if a.strangers() {
		a.ask(ctx)
		now = time.Now()
		err = a.lookAtPods(now, look)
	}
	in := eviction.Input{
		Summary: &a.summary, Pods: a.objects, ObserveDisks: a.observeDisks(), MemoryOnly: look == memoryLook,
		Measuring: look == fullLook && a.measuring(now), Terse: look == memoryLook,
	}
	if a.manager.Ready(now).Stopped { // nothing is to be lost by looking who it is
		in.Growing = a.growth.since(a.Reader)
	}
	d := a.manager.Step(now, in)
	if len(d.Evictions) == 1 && d.Evictions[0].Inexact() { // a threshold that was not met before the step
		now = time.Now()
		err = errors.Join(err, a.Reader.Memory(now, a.pods, &a.summary))
		d = a.manager.Step(now, in)
	}
	if len(d.Reclaim) > 0 && len(d.Evictions) == 0 && !a.relieve(now, &d) {
		d = a.manager.Reclaimed(now, in) // it was collected, or nothing can be: the look that there is decides
	}
	a.spare(&d)
	return d, now, err
}

// measuring: what pods take of a disk that is short is not known as of now. It is measured anew since the disk became short, and since
// the last victim's files were removed; not waited for very long, for a walk may take its time.
func (a *agent) measuring(now time.Time) bool {
	if a.background == nil {
		return false
	}
	since := a.manager.Ready(now).DiskFresh
	if since.IsZero() || a.background.Fresh(since) {
		return false
	}
	a.background.Demand(since)
	return true
}

// nobody logs why a threshold gets no victim.
func (a *agent) nobody(d *eviction.Decision) {
	if d.Signal.Threshold.Signal == "" {
		return
	}
	key := "nobody: " + d.Reason
	if d.Stopped { // the reason has figures that grow from look to look
		key = "stopped: " + string(d.Signal.Threshold.Signal)
	}
	a.repeat(key, func() {
		a.log.Warn("no eviction", append(signalFields(d.Signal), "reason", d.Reason, "protected", len(d.Protected))...)
	})
}

// spare looks for a kubelet before somebody is evicted for what he takes of a disk: its files may be at stake, so that what was found
// a minute ago does not do. Beside one, nobody is.
func (a *agent) spare(d *eviction.Decision) {
	if !slices.ContainsFunc(d.Evictions, func(e eviction.Eviction) bool { return e.Disk() }) {
		return
	}
	a.lookForKubelet()
	if a.observeDisks() {
		d.Evictions, d.Reason = nil, "a kubelet is there now"
	}
}

// lookAtPods reads what a decision needs to know. The node's figures that are not read anew are as they were.
func (a *agent) lookAtPods(now time.Time, look int) error {
	a.summary.Node = a.node
	var err error
	if look == memoryLook {
		err = a.readVictims(now)
	} else {
		err = a.Reader.Collect(now, a.pods, &a.summary)
		if a.background != nil {
			a.background.Fill(time.Now(), &a.summary)
		}
	}
	a.node = a.summary.Node
	return err
}

// quickReads is how many pods are read one by one before all are: somebody may have a lot of page cache in each of his.
const quickReads = 16

// readVictims is the look that an eviction for memory is decided by: little of every pod, and all of those who may be chosen. While
// frames are recorded all is read of all, so that they can be decided again by other rules.
func (a *agent) readVictims(now time.Time) error {
	if a.recorder != nil {
		return a.Reader.Memory(now, a.pods, &a.summary)
	}
	err := a.Reader.Quick(now, a.pods, &a.summary)
	in := eviction.Input{Summary: &a.summary, Pods: a.objects, MemoryOnly: true}
	for n := 0; ; n++ {
		i := a.manager.Unread(now, in)
		switch {
		case i < 0:
			return err
		case n == quickReads:
			return errors.Join(err, a.Reader.Memory(now, a.pods, &a.summary))
		}
		if wrong := a.Reader.QuickPod(now, a.pods, &a.summary, i); wrong != nil {
			err = errors.Join(err, wrong)
		}
	}
}

// strangers reports whether the hierarchy has pods that the runtime has not told of. One that it was asked about in vain often
// enough holds up no kill any more.
func (a *agent) strangers() bool {
	for i := range a.summary.Pods {
		if p := &a.summary.Pods[i]; !p.Announced && p.Populated.V && a.asked[p.PodRef.UID] < asks {
			return true
		}
	}
	return false
}

// ask has the runtime listed now and waits a moment for its answer.
func (a *agent) ask(ctx context.Context) {
	select {
	case u := <-a.watcher.updates: // an older answer, which must not be taken for the one to come
		a.listed(u)
	default:
	}
	select {
	case u := <-a.gateUpdates(): // the runtime has told of it already
		a.told(u)
	default:
	}
	a.watcher.ask()
	timer := time.NewTimer(unannounced)
	defer timer.Stop()
	select {
	case u := <-a.watcher.updates:
		a.listed(u)
	case <-timer.C:
	case <-ctx.Done():
	}
}

// breaker logs once that evictions were stopped, and once that they are not any more.
func (a *agent) breaker(d *eviction.Decision) {
	switch {
	case d.Stopped && a.stopped == "":
		a.log.Error("evictions are stopped: they did not help", "reason", d.Reason)
		a.stopped = d.Reason
	case d.Stopped:
		a.stopped = d.Reason
	case a.stopped != "" && len(d.Evictions) > 0:
		a.log.Info("evictions go on")
		a.stopped = ""
	}
}

// stillMet reports whether a threshold is met by a fresh cheap look. Another one for the same signal, softer, may well be.
func (a *agent) stillMet(t *eviction.Threshold) bool {
	a.measure(time.Now())
	return a.ready.Meets(t)
}
