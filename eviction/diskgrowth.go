package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// diskChange is the change of a disk since it was last quiet.
type diskChange struct {
	heldMore      uint64 // growth of live pods that measurements show
	estimate      uint64 // the same, with what pods wrote whose usage is not completely known
	endedHeldMore uint64 // growth of pods that have ended, which no eviction returns
	freed         uint64 // usage of ended pods that was freed since
	usedMore      uint64 // growth in use of the disk
	toExplain     uint64 // usedMore, or the missing amount if that is more
	// estimate shows nothing: the disk hardly lost anything, or the counter of writes is only slab
	// memory, which read files use too
	estimateWeak bool
	pods         map[string]podGrowth
}

// podGrowth is a pod's growth on a disk since it was quiet.
type podGrowth struct {
	measured  uint64 // as far as measurements show it
	shrunk    uint64
	estimate  uint64 // the same, or what the pod wrote if its usage is not completely known
	holds     uint64 // what the pod holds if it removed and overwrote nothing; zero: as measured
	suspicion suspicion
}

// explained reports whether an amount is at least half of the amount to explain.
func (g *diskChange) explained(amount uint64) bool { return amount >= g.toExplain-g.toExplain/2 }

// rest returns the part of the loss that neither measurements nor writes explain, at least 1. Each
// pod with unknown growth may have caused it. explained reports whether it is at most half. If it is
// more, a pod that is not completely measured may have caused it, too, however little it wrote.
func (g *diskChange) rest() (rest uint16, explained bool) {
	sum := 0
	for _, p := range g.pods {
		sum += int(p.suspicion.part)
	}
	return uint16(max(wholeLoss-sum, 1)), sum >= wholeLoss/2
}

// written reports whether an eligible pod wrote at least 1/partAlone of the loss. Its end stops that,
// although it may return nothing.
func (g *diskChange) written(ranked []Ranked) bool {
	return slices.ContainsFunc(ranked, func(r Ranked) bool {
		return g.pods[r.Pod.PodRef.UID].suspicion.wrote >= wholeLoss/partAlone
	})
}

// changeSinceQuiet computes the change of a disk since it was last quiet. A pod that did not exist
// at that time counts as having used nothing. A pod that is not measured now counts with its
// earlier usage. The known usage of a pod that is gone counts as freed, so a successor with the
// same usage explains nothing.
func (e *diskExplainer) changeSinceQuiet(in Input, w *watched, d *fileSystems,
	full time.Time) (g diskChange, known bool) {
	q, known := e.quiet[w.Signal]
	if !known {
		return g, false
	}
	g = diskChange{usedMore: usedMore(&w.observed, &q), pods: map[string]podGrowth{}}
	g.estimateWeak = w.info.kind == kindInodes || g.usedMore < w.limit/(4*dip)
	// With a minimum reclaim, pods must explain no more than the amount that was used or missing when
	// the disk became short.
	g.toExplain = max(g.usedMore, min(w.missing(),
		max(usedMore(&w.firstMet, &q), w.limit-min(w.firstMet.Value, w.limit))))
	held, shrunk, listed := d.heldByPod(in, w), uint64(0), map[string]bool{}
	for _, uid := range in.Summary.RemainingDirs {
		listed[uid] = true
	}
	for i := range in.Summary.Pods {
		c := Candidate{Pod: &in.Summary.Pods[i], Object: in.object(&in.Summary.Pods[i])}
		uid := c.Pod.PodRef.UID
		listed[uid] = true
		if _, twice := g.pods[uid]; twice { // a foreign Summary may contain a pod twice
			continue
		}
		p := e.growthOf(&q, &c, w, d, held, full, g.toExplain)
		if g.pods[uid] = p; empty(c.Pod, c.Object) {
			g.endedHeldMore = stats.SaturatingAdd(g.endedHeldMore, p.measured)
			g.freed = stats.SaturatingAdd(g.freed, p.shrunk)
			continue
		}
		g.heldMore = stats.SaturatingAdd(g.heldMore, p.measured)
		if g.estimateWeak {
			p.estimate = p.measured
		}
		g.estimate = stats.SaturatingAdd(g.estimate, min(p.estimate, max(p.measured, g.usedMore)))
		shrunk = stats.SaturatingAdd(shrunk, p.shrunk)
	}
	for uid, then := range q.pods {
		if !listed[uid] {
			g.freed = stats.SaturatingAdd(g.freed, then)
		}
	}
	less := stats.SaturatingAdd(shrunk, g.freed)
	g.heldMore -= min(less, g.heldMore)
	g.estimate -= min(less, g.estimate)
	return g, true
}

// growthOf computes the growth of one pod, and the part of the loss that it may have caused. What
// it wrote counts only if its usage is not completely known, or if it may have written to a volume
// that is not measured: a database that overwrites its files is judged by its files. Writes to such
// a volume explain no shortage, because the database may overwrite files there, too.
func (e *diskExplainer) growthOf(q *quietDisk, c *Candidate, w *watched, d *fileSystems,
	held map[string]uint64, full time.Time, toExplain uint64) (p podGrowth) {
	uid := c.Pod.PodRef.UID
	now, measured := held[uid]
	then, unknown := q.pods[uid], q.growthUnknown(full, c.Pod)
	complete := measured && d.complete(c, w)
	fresh := complete && !e.stale(c, w, d)
	first, completed := q.completed[uid]
	completed = completed && unknown && complete
	counter, base := d.written(c.Pod, w), e.writtenBase(w, uid)
	if completed && !d.writesUnmeasured(c, w) { // what it wrote before; its growth since is measured
		counter = first.written
		counter.V = max(counter.V, base.older.written)
	}
	wrote, _ := q.wroteSince(base.older, uid, counter, w)
	recently, lost := q.wroteSince(base.recent(&w.observed), uid, counter, w)
	part := partOf(recently.V, lost)
	switch {
	case measured && !unknown:
		p.measured, p.shrunk = now-min(then, now), then-min(then, now)
	case completed:
		p.measured = now - min(first.held, now)
		wrote.V = stats.SaturatingAdd(wrote.V, p.measured)
		part = max(part, partOf(p.measured, w.lostSince(first.used)))
	}
	grew := partOf(p.measured, toExplain)
	p.suspicion = suspicion{part: max(part, grew), wrote: part}
	p.estimate = max(p.measured, wrote.V)
	switch {
	case complete && !unknown && fresh:
		p.estimate, p.suspicion.idle = p.measured, true
		if !d.writesUnmeasured(c, w) {
			p.suspicion.part = grew
		}
		return p
	case complete && !unknown:
		p.estimate, p.suspicion.stale = p.measured, true
	case completed && fresh:
		p.suspicion.idle = wrote.OK
	}
	p.suspicion.unknown = !wrote.OK
	p.holds = min(stats.SaturatingAdd(then, max(p.measured, wrote.V)), used(&w.observed))
	return p
}

// usedMore returns the growth in use of a disk since it was quiet.
func usedMore(o *stats.Observation, q *quietDisk) uint64 { return used(o) - min(q.used, used(o)) }

// missing returns the amount that must be freed to end a disk's shortage, including the minimum
// reclaim.
func (w *watched) missing() uint64 {
	enough := w.recoveryTarget(w.observed.Capacity)
	return enough - min(w.observed.Value, enough)
}
