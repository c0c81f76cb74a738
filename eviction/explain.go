package eviction

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"jettison/stats"
)

// What fills a disk need not be a pod's: images, the node's own logs, a file that nobody finds. Pods are ranked by what they are known to
// hold, so that then one would go that has nothing to do with it. So it is kept how much of the disk was used, and what pods held of it,
// when the disk was last quiet. If what they hold more by now explains less than half of what is used more,
//
//	no pod goes before they were measured once more, anew and for longer (unfinished.go);
//	if that does not explain it either, none goes for unexplainedLimit: the node has the condition, and what can be reclaimed is;
//	then the first in the ranking goes, as ever, unless it is known that all of the ranking hold too little to help.
//
// The first goes at once if what it alone holds more ends the shortage, and is no small part of what was taken. How much is used is known
// by any look at a disk at rest, what pods held only by a full one: until that was made they held nothing, so that what they hold now
// is the most that they can explain. A disk that was never seen quiet has nothing to be held against. While a minimum reclaim keeps one
// short that has hardly more used than then, it is what is missing that pods have to explain.

const (
	// unexplainedLimit is how long no pod goes for what pods do not explain. A kubelet would evict at once, one after the other.
	unexplainedLimit = 10 * time.Minute
	// quietEvery is how often a disk that rests is looked at, and quietAgain when a look at it failed.
	quietEvery = 15 * time.Minute
	quietAgain = time.Minute
	// doubtKept is how long a doubt outlives its shortage: one that ends for a moment now and then must not begin anew each time.
	doubtKept = 10 * time.Minute
	// partAlone of what was taken is no small part, if one pod has it.
	partAlone = 4
	// justBegun is how long before a look at a disk at rest was asked for a pod may have begun to count as one that held nothing then.
	justBegun = 10 * time.Second
)

// explaining is what a Manager remembers for that.
type explaining struct {
	pending bool      // a look at disks that rest is due
	asked   time.Time // since when
	tried   time.Time // when the last one was made
	fuller  time.Time // since when pods have to be measured once more; zero: for no doubt that this process had
	quiet   map[stats.Signal]quiet
	doubts  map[stats.Signal]doubt
	unsaved bool // something of quiet and doubts has changed since Save
}

// quiet is how a disk was when it was last quiet.
type quiet struct {
	at   time.Time
	used uint64            // of its capacity, in the signal's unit
	pods map[string]uint64 // what each pod held that was measured, by UID; nil: it was not looked at
	// unmeasured are those that were there then and not measured, or whose walk was cut off, by UID, and whether the runtime had told of them:
	// how much they have grown since is not known, for a longer walk finds more.
	unmeasured map[string]bool
	again      time.Duration // it is looked at again after that; zero: after quietEvery
}

// unknown reports whether what a pod held then is not known. One held nothing of which nothing but a cgroup was there, and whose first
// sandbox is younger than that, by a clock that was not ahead.
func (q *quiet) unknown(now time.Time, p *stats.PodStats) bool {
	told, was := q.unmeasured[p.PodRef.UID]
	return was && (told || p.StartTime.After(now) || len(p.SandboxIDs) > 1 || !p.StartTime.After(q.at.Add(-justBegun)))
}

// begun reports whether a pod had just begun when a look was asked for, or has begun since. It has no files that could have been measured,
// and had no time to hold much: were it as unknown as one that cannot be measured, it could fill the disk and explain nothing. A sandbox
// that was made anew, or by a clock that was ahead, is no new pod.
func (e *explaining) begun(now time.Time, p *stats.PodStats) bool {
	return len(p.SandboxIDs) <= 1 && p.StartTime.After(e.asked.Add(-justBegun)) && !p.StartTime.After(now)
}

// sum is what all pods held.
func (q *quiet) sum() (all uint64) {
	for _, held := range q.pods {
		all = stats.SaturatingAdd(all, held)
	}
	return all
}

// doubt is a shortage that pods do not explain.
type doubt struct {
	since  time.Time
	ended  time.Time // the shortage did; zero: it has not
	reason string    // why no pod goes; empty: one may
}

// gone reports whether so long has passed since a time; a clock that was set back must not make it wait.
func gone(now, since time.Time, long time.Duration) bool {
	return since.IsZero() || now.Before(since) || now.Sub(since) >= long
}

// used is how much of its capacity is not available.
func used(o *stats.Observation) uint64 { return o.Capacity - min(o.Value, o.Capacity) }

// rests reports whether a disk is to be looked at anew: none of its thresholds is met, however near they are, for what fills it slowly must
// not be held against who fills it fast; and it is not one that was short a while ago for what no pod explained.
func (m *Manager) rests(now time.Time, of *watched) bool {
	if !of.info.kind.disk() || !of.observed.OK {
		return false
	}
	for i := range m.watched {
		if w := &m.watched[i]; w.Signal == of.Signal && w.met {
			return false
		}
	}
	if _, doubted := m.explain.doubts[of.Signal]; doubted {
		return false
	}
	q := m.explain.quiet[of.Signal]
	return q.pods == nil || gone(now, q.at, cmp.Or(q.again, quietEvery))
}

// watchQuiet finds out whether a look at disks that rest is due, and forgets what was not explained of those that are short no more.
func (m *Manager) watchQuiet(now time.Time) {
	e := &m.explain
	for signal, d := range e.doubts {
		switch short := m.short(signal); {
		case short && !d.ended.IsZero():
			d.ended = time.Time{}
		case !short && d.ended.IsZero():
			d.ended, d.reason = now, ""
		case !short && gone(now, d.ended, doubtKept):
			m.forgetDoubt(signal)
			continue
		default:
			continue
		}
		e.doubts[signal] = d
		e.unsaved = true
	}
	if !m.config.Explain || m.situation.ObserveDisks {
		e.pending = false
		return
	}
	again := !e.pending && gone(now, e.tried, quietAgain)
	for i := range m.watched {
		w := &m.watched[i]
		if !m.rests(now, w) {
			continue
		}
		if q := e.quiet[w.Signal]; q.pods == nil && gone(now, q.at, quietEvery) {
			e.keep(w.Signal, quiet{at: now, used: used(&w.observed)})
		}
		if again {
			e.pending, e.asked, again = true, now, false
		}
	}
}

// keep remembers how a disk is at rest.
func (e *explaining) keep(signal stats.Signal, q quiet) {
	if e.quiet == nil {
		e.quiet = map[stats.Signal]quiet{}
	}
	e.quiet[signal] = q
	e.unsaved = true
}

func (m *Manager) forgetDoubt(signal stats.Signal) {
	if _, doubted := m.explain.doubts[signal]; doubted {
		delete(m.explain.doubts, signal)
		m.explain.unsaved = true
	}
}

// short: a threshold for a signal is met, as far as is known.
func (m *Manager) short(signal stats.Signal) bool {
	for i := range m.watched {
		if w := &m.watched[i]; w.Signal == signal && (w.met || !w.observed.OK && !w.since.IsZero()) {
			return true
		}
	}
	return false
}

// lookAtQuiet keeps how the disks are that rest. Where less than half of the pods are measured, what they held is not known. One that has
// become short meanwhile is looked at as soon as it rests again.
func (m *Manager) lookAtQuiet(now time.Time, in Input) {
	e := &m.explain
	if !e.pending || in.MemoryOnly || in.Measuring || in.ObserveDisks {
		return
	}
	e.pending = false
	for i := range m.watched {
		w := &m.watched[i]
		if !m.rests(now, w) {
			continue
		}
		e.tried = now
		if held := m.held(in, w); 2*len(held) >= len(in.Summary.Pods) {
			q := m.quietNow(now, in, w, held)
			q.fit()
			e.keep(w.Signal, q)
		}
	}
}

// quietNow is how a disk is that rests. Where not every pod was measured, wholly and since the look was asked for, the next one comes soon,
// and ever later while none is missing that was not before: until then a pod may seem to have grown, or not, by what it held.
func (m *Manager) quietNow(now time.Time, in Input, w *watched, held map[string]uint64) quiet {
	e := &m.explain
	before := e.quiet[w.Signal]
	q := quiet{at: now, used: used(&w.observed), pods: held, unmeasured: map[string]bool{}}
	whole, known := true, true
	for i := range in.Summary.Pods {
		p := &in.Summary.Pods[i]
		switch st := &p.EphemeralStorage; {
		case has(q.pods, p.PodRef.UID):
			if whole = whole && (st.Time.IsZero() || st.UsedBytes.OK && !st.Partial && !st.Time.Before(e.asked)); st.Cut {
				q.unmeasured[p.PodRef.UID] = true
			}
		case e.begun(now, p):
			q.pods[p.PodRef.UID], whole = 0, false
		default:
			_, was := before.unmeasured[p.PodRef.UID]
			q.unmeasured[p.PodRef.UID], whole, known = p.Announced, false, known && was
		}
	}
	switch {
	case !known:
		q.again = quietAgain
	case !whole:
		q.again = min(max(2*before.again, quietAgain), quietEvery)
	}
	return q
}

// others is how much was used beyond what pods are known to have held: those of which that is not known held no more, together.
func (q *quiet) others() uint64 { return q.used - min(q.sum(), q.used) }

// fit forgets what those held that held most, until the rest is no more than was used: files that share blocks (FICLONE) count whole, and
// who makes many before it fills a disk would hold no more then than before. What those held that held less is not forgotten for that; one
// that held more than each of several who share is.
func (q *quiet) fit() {
	all := q.sum()
	if all <= q.used {
		return
	}
	uids := slices.SortedFunc(maps.Keys(q.pods), func(a, b string) int {
		return cmp.Or(cmp.Compare(q.pods[b], q.pods[a]), cmp.Compare(a, b))
	})
	for _, uid := range uids {
		if all <= q.used {
			break
		}
		all -= q.pods[uid]
		delete(q.pods, uid)
	}
}

// held is what each pod is known to hold of a disk, protected ones too: no more than is used of it.
func (m *Manager) held(in Input, w *watched) map[string]uint64 {
	pods := make(map[string]uint64, len(in.Summary.Pods))
	for i := range in.Summary.Pods {
		c := Candidate{Pod: &in.Summary.Pods[i], Object: in.Pods[in.Summary.Pods[i].PodRef.UID]}
		if u := m.diskUse(&c, w); u.OK && u.V <= implausible {
			pods[c.Pod.PodRef.UID] = min(u.V, used(&w.observed))
		}
	}
	return pods
}

func has(pods map[string]uint64, uid string) bool {
	_, has := pods[uid]
	return has
}

// grown is what became of a disk since it was last quiet.
type grown struct {
	pods  uint64 // so much more is held by pods that live
	ended uint64 // and so much by pods that have ended: nobody's end brings it back
	gone  uint64 // so much was held by pods that have ended, and is not there any more
	lost  uint64 // so much more is used of it
	short uint64 // so much is to be explained: that, or what is missing where that is more
}

// explained finds out what became of a disk. A pod that was not there then held nothing. How much one has grown that was not measured then
// is not known, so that it explains nothing but what it cannot have held then, and one that is not measured now holds what it held. What
// one held that is gone is free, as far as that is known: its successor has taken nothing by that.
func (m *Manager) explained(in Input, w *watched) (g grown, known bool) {
	q, known := m.explain.quiet[w.Signal]
	if !known {
		return g, false
	}
	// Of a minimum reclaim no more is to be explained than was taken, or was missing, when the disk became short.
	g.lost = taken(&w.observed, &q)
	g.short = max(g.lost, min(w.missing(), max(taken(&w.first, &q), w.limit-min(w.first.Value, w.limit))))
	held, less, grew, listed := m.held(in, w), uint64(0), uint64(0), map[string]bool{}
	for _, uid := range in.Summary.Remains {
		listed[uid] = true
	}
	for i := range in.Summary.Pods {
		p := &in.Summary.Pods[i]
		now, measured := held[p.PodRef.UID]
		listed[p.PodRef.UID] = true
		if !measured {
			continue
		}
		delete(held, p.PodRef.UID) // a Summary of somebody else's may have it twice
		then := q.pods[p.PodRef.UID]
		if q.unknown(m.lastFull, p) {
			if !empty(p, in.object(p)) {
				grew = stats.SaturatingAdd(grew, now-min(then, now))
			}
			continue
		}
		if more, fewer := now-min(then, now), then-min(then, now); empty(p, in.object(p)) {
			g.ended, g.gone = stats.SaturatingAdd(g.ended, more), stats.SaturatingAdd(g.gone, fewer)
		} else {
			g.pods, less = stats.SaturatingAdd(g.pods, more), stats.SaturatingAdd(less, fewer)
		}
	}
	for uid, then := range q.pods {
		if !listed[uid] {
			g.gone = stats.SaturatingAdd(g.gone, then)
		}
	}
	g.pods = stats.SaturatingAdd(g.pods, grew-min(q.others(), grew))
	g.pods -= min(stats.SaturatingAdd(less, g.gone), g.pods)
	return g, true
}

// taken is how much more is used of a disk than when it was quiet.
func taken(o *stats.Observation, q *quiet) uint64 { return used(o) - min(q.used, used(o)) }

// missing is what a disk lacks for its shortage to be over, with the minimum reclaim.
func (w *watched) missing() uint64 {
	enough := w.enough(w.observed.Capacity)
	return enough - min(w.observed.Value, enough)
}

// unexplained says why no pod goes for a shortage that pods do not explain; empty: they do, or one may go all the same.
func (m *Manager) unexplained(now time.Time, in Input, w *watched, ranked []Ranked) string {
	e := &m.explain
	g, known := m.explained(in, w)
	if !known || g.pods >= g.short-g.short/2 || m.explainsAlone(w, &ranked[0], &g) {
		m.forgetDoubt(w.Signal)
		return ""
	}
	d, doubted := e.doubts[w.Signal]
	of := func(v uint64) string { return amountText(w.info.kind, v) }
	what := "something else takes it"
	if g.ended >= g.short-g.short/2 {
		what = of(g.ended) + " of it is held by pods that have ended"
	}
	since := "were taken since"
	if g.short > g.lost {
		since = "are missing"
	}
	d.reason = fmt.Sprintf("what pods hold more than at %s explains %s of the %s that %s of what %s counts: ",
		e.quiet[w.Signal].at.UTC().Format(time.TimeOnly), of(g.pods), of(g.short), since, w.Signal)
	waits := now.Sub(d.since) < unexplainedLimit
	switch {
	case !doubted || now.Before(d.since):
		d.since, e.fuller = now, now
		e.unsaved = true
		d.reason += measuredAgain
	case waits && e.fuller.IsZero(): // it is this process' first word of it
		e.fuller = now
		d.reason += measuredAgain
	case waits:
		d.reason += what + m.orPods(in, w) + d.since.Add(unexplainedLimit).UTC().Format(time.TimeOnly)
	case !m.mayHelp(w, ranked):
		d.reason += what + ", and the end of all pods that may be evicted would not bring back what is short"
	default:
		d.reason = ""
	}
	if e.doubts == nil {
		e.doubts = map[stats.Signal]doubt{}
	}
	e.doubts[w.Signal] = d
	return d.reason
}

// explainsAlone reports whether what one pod holds more than when the disk was last quiet would end the shortage, and is no small part of
// what is to be explained: a shortage that has just begun is small. What those held that are gone was there for who came since.
func (m *Manager) explainsAlone(w *watched, r *Ranked, g *grown) bool {
	q, uid := m.explain.quiet[w.Signal], r.Pod.PodRef.UID
	if !r.Keys.Measured || q.unknown(m.lastFull, r.Pod) {
		return false
	}
	more := r.Keys.Usage - min(q.pods[uid], r.Keys.Usage)
	if q.pods[uid] == 0 {
		more -= min(g.gone, more)
	}
	return more >= g.short/partAlone && stats.SaturatingAdd(w.observed.Value, more) >= w.enough(w.observed.Capacity)
}

// Unexplained says of the disks that are short and for which no pod goes, since pods do not explain it, why; empty: there is none.
func (m *Manager) Unexplained() string {
	var reasons []string
	for i := range m.watched {
		if w := &m.watched[i]; i == 0 || w.Signal != m.watched[i-1].Signal {
			if d := m.explain.doubts[w.Signal]; d.reason != "" {
				reasons = append(reasons, d.reason)
			}
		}
	}
	return strings.Join(reasons, "; ")
}

// diskUse is what a pod takes of the file system that a threshold is for, files without a name included.
func (m *Manager) diskUse(c *Candidate, w *watched) stats.Opt[uint64] {
	use := m.diskUsage(c, w)
	if u := unnamed(c, w); u.OK {
		use = stats.Some(stats.SaturatingAdd(use.V, inUnit(&u.V, w)))
	}
	return use
}

// unnamed is what a pod's processes keep there of files without a name.
func unnamed(c *Candidate, w *watched) stats.Opt[stats.FsUsage] {
	u := &c.Pod.EphemeralStorage.Unnamed
	return [...]stats.Opt[stats.FsUsage]{nodeFs: u.Node, imageFs: u.Image, containerFs: u.Container}[w.info.fs]
}

func inUnit(u *stats.FsUsage, w *watched) uint64 {
	if w.info.kind == kindInodes {
		return u.InodesUsed
	}
	return u.UsedBytes
}
