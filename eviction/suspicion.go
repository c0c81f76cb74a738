package eviction

import (
	"cmp"
	"time"
)

// This file decides when a pod is evicted for a shortage that measurements do not explain, and
// which one. The delay protects pods from a shortage that they did not cause. It ends before the
// disk is full, because then all pods fail.

const (
	// suspectDelay is the time in which no pod is evicted for a shortage that pods do not explain.
	// The delay starts again with each such eviction, doubled, up to suspectDelayMax. An eviction that
	// freed at least 1/suspectFreed of what was missing resets it.
	suspectDelay    = time.Minute
	suspectDelayMax = 10 * time.Minute
	suspectFreed    = 10
	// wholeLoss is a part of 1 of a disk's loss. Smaller parts than 1/wholeLoss are equal, so that the
	// other keys rank pods that hardly wrote.
	wholeLoss = 1024
	// smallGrowth: among pods that were completely measured, writes count before a growth of less than
	// 1/smallGrowth of the loss, such as that of a log.
	smallGrowth = 16
)

// suspicion is the part of a disk's loss that a pod may have caused, for a shortage that
// measurements do not explain. The zero value is that of all pods if they explain the shortage.
type suspicion struct {
	part    uint16 // may have caused, in 1/wholeLoss
	wrote   uint16 // its processes wrote, in 1/wholeLoss
	stale   bool   // all files were measured, but not again: it may have overwritten them
	unknown bool   // neither measurements nor writes show its growth
	idle    bool   // complete and new measurements show its growth
}

// compare orders pods by suspicion, the first victim first. Among pods with the same part, those
// come last whose files were all measured. Among these, pods that wrote more come first, perhaps to
// files that no measurement finds, as those of a hostPath volume. Other pods with the same part are
// equal: the runtime writes their logs, and space can be taken without a write (fallocate).
func (s suspicion) compare(other suspicion) int {
	return cmp.Or(cmp.Compare(other.weight(), s.weight()), compareBool(other.stale, s.stale),
		compareBool(other.idle, s.idle), cmp.Compare(other.idleWrote(), s.idleWrote()))
}

// weight returns the part by which pods are compared.
func (s suspicion) weight() uint16 {
	if s.idle && s.part < wholeLoss/smallGrowth {
		return 0
	}
	return s.part
}

// withRest returns the part of a pod that may also have caused the unexplained rest. A part that is not
// large may be of other files.
func (s suspicion) withRest(rest uint16) uint16 {
	if s.part < wholeLoss/partAlone {
		return max(s.part, rest)
	}
	return min(s.part+rest, wholeLoss)
}

func (s suspicion) idleWrote() uint16 {
	if !s.idle {
		return 0
	}
	return s.wrote
}

// serious reports whether a pod may have filled the disk: its growth is unknown or large, or it wrote
// much, perhaps to files that no measurement finds.
func (s suspicion) serious() bool {
	return s.part > 0 && !s.idle && !s.stale || max(s.part, s.idleWrote()) >= wholeLoss/partAlone
}

// partOf returns an amount in 1/wholeLoss of a loss.
func partOf(amount, loss uint64) uint16 {
	switch {
	case amount == 0:
		return 0
	case amount >= loss:
		return wholeLoss
	}
	return uint16(float64(amount) / float64(loss) * wholeLoss)
}

// doubt is a shortage that pods do not explain.
type doubt struct {
	since  time.Time
	ended  time.Time // end of the shortage; zero: it has not ended
	reason string    // why no pod is evicted; empty: a pod may be evicted
}

// suspectBackoffs delay evictions by suspicion, by file system and hardness: neither another disk
// nor a soft threshold holds a hard one back. Signals of one disk share a delay.
type suspectBackoffs [containerFs + 1][2]suspectBackoff

type suspectBackoff struct {
	last  time.Time     // the last such eviction; zero: none
	delay time.Duration // zero: suspectDelay
}

// wait returns the current delay.
func (b *suspectBackoff) wait() time.Duration { return max(b.delay, suspectDelay) }

// next returns when the next pod may be evicted.
func (b *suspectBackoff) next(now time.Time) time.Time {
	if b.last.IsZero() || now.Before(b.last) {
		return time.Time{}
	}
	return b.last.Add(b.wait())
}

const (
	softEvictions = iota
	hardEvictions
)

// of returns the delay of a threshold.
func (b *suspectBackoffs) of(fs fileSystem, hard bool) *suspectBackoff {
	if hard {
		return &b[fs][hardEvictions]
	}
	return &b[fs][softEvictions]
}

// deadline returns when a pod may be evicted for a doubt: the delay after its beginning, or
// immediately if writes explain the shortage or the disk is urgent, but not before the delay after
// the last such eviction. A soft threshold also waits for the victim of a hard one. A hard one waits
// for that of a soft one only for the shortest delay, and not if the deadline is early.
func (b *suspectBackoffs) deadline(now time.Time, d *doubt, fs fileSystem, hard, early bool) time.Time {
	at := d.since
	if !early {
		at = at.Add(suspectDelay)
	}
	last, soft := b.of(fs, true).next(now), *b.of(fs, false)
	if hard {
		soft.delay = 0
	}
	if next := soft.next(now); !(hard && early) && next.After(last) {
		last = next
	}
	if last.After(at) {
		return last
	}
	return at
}

// noteSuspected stores that a pod was evicted by suspicion. The delay doubles until the eviction
// has freed enough.
func (e *diskExplainer) noteSuspected(now time.Time, eviction *Eviction, ds *fileSystems) {
	if !eviction.suspected {
		return
	}
	b := e.backoffs.of(ds.diskOf(signals[eviction.Signal].fs), eviction.hard)
	*b = suspectBackoff{last: now, delay: min(2*b.wait(), suspectDelayMax)}
	e.unsaved = true
}

// settleSuspected resets the delay if an eviction that is over freed enough. Other pods may have used
// that up meanwhile.
func (e *diskExplainer) settleSuspected(l *Life, w *watched, ds *fileSystems) {
	if !l.e.suspected || w == nil {
		return
	}
	before := &l.met.Observed
	enough := w.recoveryTarget(before.Capacity)
	missing := enough - min(before.Value, enough)
	freed := max(w.observed.Value, l.level) - l.level
	freed = max(freed, l.returnedOf(w))
	if !w.met || freed >= missing/suspectFreed {
		e.endBackoff(&l.e, ds)
	}
}

// endBackoff resets the delay of an eviction's threshold. A victim that survives its kill shows
// nothing about the others.
func (e *diskExplainer) endBackoff(eviction *Eviction, ds *fileSystems) {
	e.backoffs.of(ds.diskOf(signals[eviction.Signal].fs), eviction.hard).delay = 0
	e.unsaved = true
}

// suspect ranks the eligible pods by suspicion first.
func (l *lists) suspect(g *diskChange) []Ranked {
	rest, explained := g.rest()
	for i := range l.eligible {
		k, p := &l.eligible[i].Keys, g.pods[l.eligible[i].Pod.PodRef.UID]
		if k.suspicion = p.suspicion; p.suspicion.part > 0 && !p.suspicion.unknown {
			k.Estimate = p.holds
		}
		if p.suspicion.unknown || !explained && !p.suspicion.idle && !p.suspicion.stale {
			k.suspicion.part = p.suspicion.withRest(rest)
		}
	}
	return l.rank()
}

// acquit ranks the eligible pods without suspicion again.
func (l *lists) acquit() []Ranked {
	for i := range l.eligible {
		l.eligible[i].Keys.suspicion, l.eligible[i].Keys.Estimate = suspicion{}, 0
	}
	return l.rank()
}
