package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// evictions are those that are not forgotten, with all that others wait for.
type evictions struct {
	config      *Config
	lives       []*Life    // in the order in which they were begun or hastened
	diskCleaned time.Time  // when the last victim's files were removed
	pool        sharedPool // what those that are not settled have in shared memory
	history     history

	known, finished []*Life // what Ready returned
}

// atOnce is how many evictions Ready has room for from the start, so that it does not allocate
// between a crossing and its kill.
const atOnce = 16

func newEvictions(c *Config) evictions {
	return evictions{
		config: c, known: make([]*Life, 0, atOnce), finished: make([]*Life, 0, atOnce),
		history: history{aside: map[string]setAside{}, evicted: map[string]evicted{}},
	}
}

// begin adds an eviction. An earlier one of the same pod ends with it.
func (es *evictions) begin(at Stamp, e Eviction, met Met, ws *watchlist,
	shmem stats.Opt[uint64]) *Life {
	for _, l := range es.lives {
		if l.e.Pod.PodRef.UID == e.Pod.PodRef.UID {
			es.replaced(l, ws)
		}
	}
	l := &Life{began: at}
	es.take(l, e, met, ws, shmem)
	l.deadline = at.Time.Add(time.Duration(e.GracePeriodSeconds) * time.Second)
	es.lives = append(es.lives, l)
	return l
}

// hasten notes that a kill cut the grace period of an eviction short. It reports whether the
// eviction is now for e: a victim of a disk stays one.
func (es *evictions) hasten(
	at Stamp, l *Life, e Eviction, met Met, ws *watchlist, shmem stats.Opt[uint64],
) (taken bool) {
	if taken = !l.e.Disk() || e.Disk(); taken {
		es.take(l, e, met, ws, shmem)
	} else {
		l.awaitAmounts(&e.Pod, ws.all)
	}
	l.killed = at
	es.lives = append(slices.DeleteFunc(es.lives, func(o *Life) bool { return o == l }), l)
	return taken
}

// take makes a life one of an eviction as it is decided on now. shmem is what the node has of
// shared memory.
func (es *evictions) take(l *Life, e Eviction, met Met, ws *watchlist, shmem stats.Opt[uint64]) {
	l.e, l.met, l.level = e, met, ws.observedBy(&e, &met.Threshold).Value
	es.await(l, ws, shmem)
	shared := e.Pod.Memory.ShmemBytes
	l.shared = e.kind == kindMemory && shared.OK && shared.V > leastShared
}

// emptied notes that no process is left of a victim.
func (es *evictions) emptied(at Stamp, l *Life, ws *watchlist) {
	if l.Dead() || l.Phase() == Over {
		return
	}
	if l.emptied = at; l.undying {
		l.undying, l.outcome, l.told = false, OutcomeUnknown, false
	}
	if !l.back {
		es.died(at.Time, l, ws)
	}
}

// cleaned notes that the runtime has cleaned up after a victim.
func (es *evictions) cleaned(at Stamp, l *Life) {
	if l.Phase() == Over {
		return
	}
	if l.clean, l.cleaned = true, at; l.e.Disk() {
		es.diskCleaned = at.Time
	}
}

// refused sets a victim aside that does not die.
func (es *evictions) refused(now time.Time, l *Life, ws *watchlist) {
	if l.Phase() == Over || l.Dead() {
		return
	}
	es.letGo(l)
	l.undying = true
	l.outcome, l.after, l.told = OutcomeUndying, ws.observedBy(&l.e, &l.met.Threshold), false
	es.history.putAside(now, l.e.Pod.PodRef.UID)
}

// gone notes that nothing is carried out any more for an eviction that a process before this one
// has begun.
func (es *evictions) gone(now time.Time, l *Life, ws *watchlist) {
	if l.gone = true; !l.departed() && !l.undying {
		l.emptied, l.cleaned, l.clean = Stamp{Time: now}, Stamp{Time: now}, true
		es.died(now, l, ws)
	}
}

// died remembers that a pod has died.
func (es *evictions) died(now time.Time, l *Life, ws *watchlist) {
	es.history.died(now, l.e.Pod.PodRef.UID)
	l.wroteOn(ws)
}

// replaced: a later attempt took its place, which cleans up for both.
func (es *evictions) replaced(l *Life, ws *watchlist) {
	if l.outcome == OutcomeUnknown {
		l.after = ws.observedBy(&l.e, &l.met.Threshold)
		l.outcome = OutcomeUndying
		if l.departed() {
			l.outcome = OutcomeNotBack
		}
	}
	es.letGo(l)
	l.clean, l.superseded = true, true
}

// letGo ends the wait for a victim.
func (es *evictions) letGo(l *Life) {
	if !l.settled {
		l.settled = true
		es.unshare(l)
	}
}

// recognize finds the victims that came back: another cgroup or sandbox has the UID, so that the
// one that was killed is gone.
func (es *evictions) recognize(now time.Time, pods []stats.PodStats, ws *watchlist) {
	for i := range pods {
		if l := es.dying(pods[i].PodRef.UID); l != nil && cameBack(&l.e.Pod, &pods[i]) {
			l.back = true
			es.died(now, l, ws)
		}
	}
	es.remade(now, pods)
}

// forget drops the evictions of which nothing more is to come, and that were told to be over. In a
// replay no caller waits to be told.
func (es *evictions) forget() {
	es.lives = slices.DeleteFunc(es.lives, func(l *Life) bool {
		return l.settled && (l.ended || l.gone || es.config.Replay)
	})
}

// cameBack tells a pod that was evicted from one that has its UID now: a kubelet keeps one UID, and
// one cgroup, across the sandboxes of a pod that it restarts.
func cameBack(was, is *stats.PodStats) bool {
	var unread stats.PodStats
	return was.CgroupID != unread.CgroupID && is.CgroupID != unread.CgroupID &&
		was.CgroupID != is.CgroupID ||
		len(was.SandboxIDs) > 0 && len(is.SandboxIDs) > 0 && was.SandboxIDs[0] != is.SandboxIDs[0]
}

// life returns the eviction of a pod that is not over; nil: there is none.
func (es *evictions) life(uid string) *Life {
	for _, l := range slices.Backward(es.lives) {
		if l.e.Pod.PodRef.UID == uid && l.Phase() != Over {
			return l
		}
	}
	return nil
}

// open returns the evictions that are not over, or whose outcome is still to be told.
func (es *evictions) open() []*Life {
	var out []*Life
	for _, l := range es.lives {
		if l.Phase() != Over || l.untold() {
			out = append(out, l)
		}
	}
	return out
}

// dying is the eviction of a pod that still lives and is not set aside; nil: none.
func (es *evictions) dying(uid string) *Life {
	for _, l := range es.lives {
		if l.dying() && l.e.Pod.PodRef.UID == uid {
			return l
		}
	}
	return nil
}

// report tells of the evictions.
func (es *evictions) report(now time.Time, r *Ready) {
	es.known, es.finished = es.known[:0], es.finished[:0]
	for _, l := range es.lives {
		if l.outcome != OutcomeUnknown && !l.told {
			l.shown = true
			es.known = append(es.known, l)
		}
		if l.outcome != OutcomeUnknown && l.clean && !l.ended && !l.gone {
			l.ending = true
			es.finished = append(es.finished, l)
		}
		hit := l.began.Time
		if !l.killed.Time.IsZero() {
			hit = l.killed.Time
		}
		r.Evicting = r.Evicting || l.Leaving() && now.Sub(hit) < busyLimit
		switch {
		case l.returns(now):
			r.Within = pollReturn
		// others fill tmpfs meanwhile: between two looks that hides what is gone
		case l.sharedAwaited(now) && !l.settled:
			r.Within = min(r.Within, pollShort)
		}
	}
	r.Outcomes, r.Finished = es.known, es.finished
}

// advance notes that what the last Ready told was seen to.
func (es *evictions) advance() {
	for _, l := range es.lives {
		l.told, l.ended = l.told || l.shown, l.ended || l.ending
		l.shown, l.ending = false, false
	}
	es.forget()
}
