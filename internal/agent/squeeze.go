package agent

import (
	"errors"
	"time"

	"jettison/cgroup"
	"jettison/internal/records"
	"jettison/internal/squeeze"
	"jettison/reclaim"
	"jettison/stats"
)

// squeezing is memory that pods give back before one of them has to go. It belongs to the loop; the squeezer has a thread of its own.
type squeezing struct {
	squeezer    *squeeze.Squeezer // nil: there is none
	governor    reclaim.MemoryGovernor
	after       stats.Opt[uint64]    // the signal after the last squeeze
	last        reclaim.MemoryEffect // of which memory came back
	nextSqueeze time.Time            // not before

	tried  time.Time            // when the last one was begun; zero: none was, or it asked for nothing
	effect reclaim.MemoryEffect // of that; nothing asked: not known yet
	before *underway            // the eviction that it came before; nil: none has followed yet
}

const (
	squeezeAgain = 10 * time.Second // after one that found nothing to ask for
	squeezeLimit = time.Second      // for the kernel to finish a chunk when the agent ends
	squeezeOld   = time.Minute      // after which it has nothing to do with an eviction any more
)

// startSqueezer starts the thread. The returned function ends it.
func (a *agent) startSqueezer() (stop func()) {
	fs, err := cgroup.Open(a.o.CgroupMount)
	if err != nil {
		a.log.Warn("memory is not reclaimed", "error", err)
		return func() {}
	}
	s := squeeze.Start(squeeze.Options{FS: fs, CgroupRoot: a.o.Config.CgroupRoot})
	a.squeezer = s
	return func() {
		if err := s.Close(squeezeLimit); err != nil {
			a.log.Warn("stopping", "error", err)
		}
	}
}

// squeezed are the effects of squeezes; nil without a squeezer, and nobody ever receives from that.
func (a *agent) squeezed() <-chan reclaim.MemoryEffect {
	if a.squeezer == nil {
		return nil
	}
	return a.squeezer.Effects()
}

// squeeze begins one where a signal of memory is near its threshold and there is time.
func (a *agent) squeeze(now time.Time) {
	if a.squeezer == nil || a.o.DryRun || now.Before(a.nextSqueeze) || a.evicting() {
		return
	}
	for i, signal := range quick[:2] {
		need := a.need(now, signal)
		need.Fill = a.paces[i].slope
		if _, ok := need.Wish(); !ok {
			continue
		}
		need.Available = a.available(signal).V
		wish, ok := need.Wish()
		if !ok {
			continue
		}
		keep := a.manager.Need(now, signal).SwapKeep
		kind, known := reclaim.MemoryKindFor(a.node.Swap.FreeBytes, keep)
		if allowed, why := a.governor.Allows(now, kind); !known || !allowed {
			a.nextSqueeze = now.Add(squeezeAgain)
			a.log.Debug("memory is not reclaimed", "kind", kind, "reason", why)
			continue
		}
		wish.Kind, wish.Rate = kind, a.governor.Rate(kind)
		a.nextSqueeze = now.Add(squeezeAgain) // unless it does something
		if a.trySqueeze(squeeze.Request{
			MemoryWish: wish, Signal: signal, Before: stats.Some(need.Available), Fill: need.Fill,
			SwapFree: a.node.Swap.FreeBytes, SwapKeep: keep, Exempt: a.unsqueezed(), Self: a.Reader.Self(),
		}) {
			return
		}
	}
}

// trySqueeze begins one. false: the one before is not over.
func (a *agent) trySqueeze(r squeeze.Request) bool {
	began := time.Now()
	if !a.squeezer.Try(r) {
		return false
	}
	a.tried, a.effect, a.before = began, reclaim.MemoryEffect{}, nil
	return true
}

// available is what there is of a signal, memory on per-CPU lists included: what is reclaimed lies there for seconds, and the cheap look
// leaves it out above the threshold.
func (a *agent) available(signal stats.Signal) stats.Opt[uint64] {
	o := a.manager.Observed(signal)
	if signal == stats.SignalMemoryAvailable {
		node := a.node
		a.Reader.PerCPU(&node)
		o = a.manager.Memory(&node)
	}
	return stats.Opt[uint64]{V: o.Value, OK: o.OK}
}

// need is how the node stands by a signal.
func (a *agent) need(now time.Time, signal stats.Signal) (n reclaim.MemoryNeed) {
	m := a.manager.Need(now, signal)
	return reclaim.MemoryNeed{Available: m.Available, Hard: m.Hard, Soft: m.Soft, Grace: m.Grace, Margin: m.Margin}
}

// unsqueezed are the pods that are not asked: those that the kubelet marks as critical.
func (a *agent) unsqueezed() map[string]bool {
	out := map[string]bool{}
	for uid, p := range a.pods {
		for i := range p.Containers {
			if adj := p.Containers[i].OOMScoreAdj; adj != nil && *adj == -997 {
				out[uid] = true
			}
		}
	}
	return out
}

// stopSqueezing makes way for an eviction. It takes no time.
func (a *agent) stopSqueezing() {
	if a.squeezer != nil {
		a.squeezer.Stop()
	}
}

// hasSqueezed takes the word of the squeezer.
func (a *agent) hasSqueezed(now time.Time, e reclaim.MemoryEffect) {
	a.squeezeKnown(&e)
	if !e.Final {
		a.measure(now)
		a.after = a.available(e.Signal)
		if e.After = a.after; !e.Stopped {
			a.last = e
		}
		return
	}
	if errors.Is(e.Err, squeeze.ErrNoReclaim) {
		a.squeezer = nil // its thread waits until the end
		a.log.Warn("memory is not reclaimed", "error", e.Err)
		return
	}
	if e.Asked == 0 {
		a.repeat("squeeze: "+e.Why, func() { a.log.Debug("no memory to reclaim", "kind", e.Kind, "reason", e.Why, "error", e.Err) })
		return
	}
	e.After, a.after, a.nextSqueeze = a.after, stats.Opt[uint64]{}, time.Time{}
	gain, _ := e.Gain()
	v := a.governor.Judge(now, &e)
	if !e.Stopped { // else what came back is the victim's, too
		a.last = e
	}
	fields := []any{"signal", e.Signal, "kind", e.Kind.String(), "observed", e.Before.V, "after", e.After.V, "asked", e.Asked, "gain", gain,
		"freed", e.Freed.V, "refaulted", e.Refaulted.V, "took", e.Took, "pods", len(e.Pods), "stopped", e.Stopped, "pays", v.Pays, "reason", v.Why}
	if u := a.before; u != nil { // its own line may have been written before this was known
		fields = append(fields, "evicted", a.name(u.Eviction().Pod.PodRef), "uid", u.Eviction().Pod.PodRef.UID)
	}
	a.log.Info("reclaimed memory", fields...)
	if !v.Off.IsZero() {
		a.log.Info("memory reclaim is off: it does not pay", "kind", e.Kind.String(), "for", v.Off.Sub(now), "reason", v.Why)
	}
}

// reclaimed is what was lately given back of a signal, for the record of an eviction that came all the same; nil: nothing was.
func (a *agent) reclaimed(now time.Time, signal stats.Signal) *uint64 {
	gain, ok := a.last.Gain()
	if !ok || gain <= 0 || a.last.Signal != signal || now.Sub(a.last.Began) > squeezeOld {
		return nil
	}
	bytes := uint64(gain)
	return &bytes
}

// afterSqueeze finds out which squeeze an eviction follows, after the kill: the last one, if it was for the same signal, or if a crossing
// has stopped it. What it got may not be known yet; squeezeKnown adds that.
func (a *agent) afterSqueeze(u *underway) {
	if a.tried.IsZero() || u.Began().Time.Sub(a.tried) > squeezeOld || u.Eviction().Disk() || a.before != nil && a.before != u {
		return
	}
	a.before = u
	if a.effect.Asked > 0 {
		a.tell(u)
	}
}

// squeezeKnown takes what is known of a squeeze by now, and adds it to the record of the eviction that followed.
func (a *agent) squeezeKnown(e *reclaim.MemoryEffect) {
	if a.tried.IsZero() || e.Began.Before(a.tried) {
		return
	}
	if e.Asked == 0 {
		a.tried, a.before = time.Time{}, nil
		return
	}
	a.effect = *e
	u := a.before
	if u == nil || !a.tell(u) || a.keeper == nil || u.record.ID == "" {
		return
	}
	u.record.Squeeze = u.squeeze
	a.keeper.Update(u.record)
}

// tell puts the effect of the last squeeze into an eviction. false: they have nothing to do with each other.
func (a *agent) tell(u *underway) bool {
	e := &a.effect
	if !e.Stopped && e.Signal != u.Eviction().Signal {
		a.before = nil
		return false
	}
	u.squeeze = &records.Squeeze{
		Signal: e.Signal, Kind: e.Kind.String(), Began: e.Began.Round(0), Took: e.Took, Asked: e.Asked, Stopped: e.Stopped,
		Freed: known(e.Freed), Refaulted: known(e.Refaulted),
	}
	return true
}

// known is a value as a record has it.
func known(v stats.Opt[uint64]) *uint64 {
	if !v.OK {
		return nil
	}
	return &v.V
}

// squeezeFields are what the log says of the squeeze before an eviction. What is not known is left out: pods are watched for seconds for
// what they read in again, and the line of the squeeze itself has that.
func squeezeFields(u *underway) (out []any) {
	s := u.squeeze
	if s == nil {
		return nil
	}
	out = []any{"squeezeAsked", s.Asked}
	if s.Freed != nil {
		out = append(out, "squeezeFreed", *s.Freed)
	}
	if s.Refaulted != nil {
		out = append(out, "squeezeRefaulted", *s.Refaulted)
	}
	return append(out, "squeezeStopped", s.Stopped)
}
