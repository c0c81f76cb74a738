package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// Evictions that others wait for: what they return is on its way, and the next victim would die for nothing.

// dip is the share of what was available that a runtime takes for itself while it tears a pod down: an eighth at most.
const dip = 8

// over reports whether nothing more is to be expected of an eviction.
func (m *Manager) over(now time.Time, l *Life) bool {
	return m.returned(now, l) && !l.sharedAwaited(now)
}

// returned is the same but for shared memory. What a disk gives back comes with the clean-up or after it: half of what is expected,
// measured after the clean-up, is enough to go by.
func (m *Manager) returned(now time.Time, l *Life) bool {
	switch {
	case !l.departed():
		return false
	case l.back:
		return true
	case !l.e.Disk():
		return l.clean || now.Sub(l.emptied.Time) >= l.limit()
	case !l.clean:
		return now.Sub(l.emptied.Time) >= cleanLimit
	}
	return m.diskReturned(now, l)
}

// held is what holds back a threshold.
type held struct {
	last      *Life  // the eviction that was begun last of those that it waits for; nil: none
	remaining uint64 // what is still to come of all of them
	unknown   bool   // of some that is not known

	// Of a disk.
	due, came uint64 // what all of them held, and what came back since: each may have given that
	dying     bool   // one is on its way out still, and not for long
	removing  bool   // the files of one are still being removed, or it was not measured since they were
}

// holding finds the evictions that a threshold waits for.
func (m *Manager) holding(now time.Time, w *watched) (h held) {
	together := m.together(now, w)
	for _, l := range m.lives {
		if l.settled || !l.sharesEnough(now, w, together) && (m.returned(now, l) || !m.eases(now, l, w, together)) {
			continue
		}
		h.last = l
		if w.info.kind.disk() {
			h.awaits(now, l, w)
			continue
		}
		left := l.remaining(w)
		h.remaining, h.unknown = stats.SaturatingAdd(h.remaining, left.V), h.unknown || !left.OK
	}
	return h
}

// eases reports whether what an eviction returns is worth waiting for. Those for a pod's own limits hold up disks only, and gentle ones no
// hard threshold, not even when they are over: soft never delays hard. What a victim was chosen for is worth it; else what it is known to
// return has to explain the shortage, with what is expected of others: it is there once its processes are gone. Files stay, whatever else a
// victim went for.
func (m *Manager) eases(now time.Time, l *Life, w *watched, together uint64) bool {
	chosen, short := l.e.kind, w.info.kind
	switch {
	case short.disk() && l.e.Disk():
		return m.easesDisk(l, w)
	case !l.counts(now, w), m.lingers(now, l):
		return false
	case short == chosen:
		return true
	case short.pressure(): // a share of time: what it will be is not known
		return true
	case !l.remaining(w).OK:
		return short != kindMemory
	}
	return !w.observed.Short(w.limit) || stats.SaturatingAdd(w.observed.Value, together) >= w.limit
}

// counts reports whether what an eviction returns may count for a threshold that is not for a disk. A disk's victim counts once it was
// killed for one (spared), until it is dead, for its clean-up takes minutes; and what it returns is a guess: where its end is late, only
// what was measured since tells. Page cache comes back a moment after a victim's end, whatever it was chosen for, and however gently.
func (l *Life) counts(now time.Time, w *watched) bool {
	chosen, short := l.e.kind, w.info.kind
	switch {
	case short == kindMemory && (l.e.Disk() || chosen != kindMemory) && l.Dead() && !l.uncached && !l.back:
		return now.Sub(l.emptied.Time) < settleLimit
	case w.Hard() && !l.e.hard && !l.hastened(), short.disk():
		return false
	case l.e.Disk():
		return short < amounts && !l.killed.Time.IsZero() && !l.departed() && (l.holds[short].OK || l.since(now) < settleLimit)
	}
	return short == chosen || short.pressure() || !l.departed()
}

// spared reports whether a disk's victim is being stopped that a hard threshold would have killed at once: that takes a second or three, in
// which memory may be gone.
func (l *Life) spared(w *watched) bool {
	k := w.info.kind
	return w.Hard() && k < amounts && !k.disk() && l.e.hard && l.e.kind.disk() && !l.e.Local() && !l.refused && l.killed.Time.IsZero()
}

// endsAlone reports whether what is expected of an eviction is all that is short.
func (l *Life) endsAlone(w *watched) bool {
	left := l.remaining(w)
	return left.OK && left.V > 0 && w.observed.Short(w.limit) &&
		stats.SaturatingAdd(w.observed.Value, left.V) >= w.limit
}

// sharesEnough reports whether what a dead victim has in shared memory explains a shortage, with what is expected of others, whatever it
// was evicted for, however gently.
func (l *Life) sharesEnough(now time.Time, w *watched, together uint64) bool {
	return w.info.kind == kindMemory && l.sharedAwaited(now) &&
		(!w.observed.Short(w.limit) || stats.SaturatingAdd(w.observed.Value, together) >= w.limit)
}

// together is what is expected of victims for an amount that is no disk's: of those that are on their way out, whatever each was chosen
// for, and what dead ones have in shared memory. What none of them explains alone they may explain together.
func (m *Manager) together(now time.Time, w *watched) (amount uint64) {
	if !w.Amount() || w.info.kind.disk() {
		return 0
	}
	shared := uint64(0)
	for _, l := range m.lives {
		switch {
		case l.settled:
		case w.info.kind == kindMemory && l.sharedAwaited(now):
			shared = stats.SaturatingAdd(shared, l.shmem.left)
		case !m.returned(now, l) && l.counts(now, w) && !m.lingers(now, l):
			amount = stats.SaturatingAdd(amount, l.remaining(w).V)
		}
	}
	return stats.SaturatingAdd(amount, min(shared, m.pool.left()))
}

// blocked says why a threshold has to wait for what earlier evictions return; empty: it has not.
func (m *Manager) blocked(now time.Time, w *watched) string {
	h := m.holding(now, w)
	if h.last == nil || h.outgrown(now, w) {
		return ""
	}
	if h.last.departed() {
		return "what the eviction of pod " + h.last.e.Pod.PodRef.UID + " returns is still on its way"
	}
	return "the eviction of pod " + h.last.e.Pod.PodRef.UID + " is under way"
}

// outgrown reports whether the shortage has grown by more than what is still on its way, and by more than a dip, which is the runtime's
// own work. It is judged by what was left of the threshold's own signal when the victim was killed, for whatever that went, or by the
// limit where it was not short then. Where it is not known what is to come, less than half of that must be left: once the victim is dead,
// for some is there already; and where it should be dead for long.
func (h *held) outgrown(now time.Time, w *watched) bool {
	if w.info.kind.disk() {
		return h.outgrownDisk(w)
	}
	base, late := h.base(w), h.late(now)
	half := w.observed.HalfGone(base) || late && w.observed.Value < h.floor(w)
	switch {
	case !w.Amount():
		return false
	case late && !h.unknown && !h.last.departed() &&
		stats.SaturatingAdd(w.observed.Value, h.remaining) < w.limit: // it does not explain the shortage
		return true
	case late && half:
		return true
	case w.observed.Value >= base:
		return false
	case h.last.departed():
		return half
	case h.unknown:
		return half
	}
	return stats.SaturatingAdd(w.observed.Value, max(h.remaining, base/dip)) < base
}

// late reports whether what is awaited should have been there long ago: the victim is held by the kernel, or its volumes by their owner.
func (h *held) late(now time.Time) bool {
	if h.last.Dead() {
		return now.Sub(h.last.emptied.Time) >= settleLimit
	}
	return h.last.since(now) >= settleLimit
}

// floor is what has to be left where what is awaited is late: next to nothing where its owner has it, for that will come.
func (h *held) floor(w *watched) uint64 {
	if h.last.departed() {
		return w.limit / (4 * dip)
	}
	return w.limit / dip
}

// base is what a shortage is held against: what was left at the kill, or the most since then, for what came back since may be eaten again.
// Of a disk it is the former: that comes back late, and of others' files.
func (h *held) base(w *watched) uint64 {
	at := h.last.levelOf(w)
	switch {
	case !at.OK:
		return w.limit
	case !w.info.kind.disk():
		at.V = max(at.V, h.last.marks[w.info.order].best)
	}
	return min(at.V, w.limit)
}

// doubtful reports whether a threshold waits for a victim that was killed and has not died, while half of what was left is gone, or for too
// long: what that victim still has is worth being measured. Where it waits too long for what a dead one has in shared memory, a look tells
// whether that one has come back, and its volumes with it.
func (m *Manager) doubtful(now time.Time, w *watched) bool {
	h := m.holding(now, w)
	switch {
	case h.last == nil || w.info.kind.disk():
		return false
	case h.last.departed():
		return h.late(now) && h.last.sharedAwaited(now)
	case h.last.since(now) <= 0:
		return false
	case h.late(now):
		return true
	}
	return w.info.kind.memoryView() && (w.observed.HalfGone(h.base(w)) || w.observed.Value < w.limit/dip)
}

// remeasure follows pods that are being evicted gently: one that leaks goes on leaking, and what it takes meanwhile it returns, too.
func (m *Manager) remeasure(in Input) {
	for _, l := range m.lives {
		if !l.dying() {
			continue
		}
		at := slices.IndexFunc(in.Summary.Pods, func(s stats.PodStats) bool { return s.PodRef.UID == l.e.Pod.PodRef.UID })
		for i := range m.watched {
			w := &m.watched[i]
			if at < 0 || w.Signal != l.e.Signal || in.Summary.Pods[at].Memory.Quick {
				continue
			}
			c := Candidate{Pod: &in.Summary.Pods[at], Object: in.object(&in.Summary.Pods[at])}
			m.measure(&c, w)
			if r := expected(&c, w); r.OK && r.V <= implausible && l.killed.Time.IsZero() {
				l.e.Returns = max(l.e.Returns, r.V)
				l.expect()
			}
		}
		if at >= 0 && !in.Summary.Pods[at].Memory.Quick {
			m.measured(l, &in.Summary.Pods[at])
			m.owe(l, &in.Summary.Pods[at])
		}
	}
}

// settle moves the evictions on: it recognises pods that came back, ends the wait for what is over, and finds out what has become of each.
func (m *Manager) settle(now time.Time, s *stats.Summary) {
	if m.config.Breaker {
		m.calm()
	}
	if len(m.lives) == 0 {
		return
	}
	for i := range s.Pods {
		// Another cgroup or sandbox has the UID: the one that was killed is gone.
		if l := m.dying(s.Pods[i].PodRef.UID); l != nil && cameBack(&l.e.Pod, &s.Pods[i]) {
			l.back = true
			m.died(now, l)
		}
	}
	m.remade(now, s.Pods)
	m.followShared()
	for _, l := range m.lives {
		m.came(l)
		if !l.settled && m.over(now, l) && m.count(now, l) {
			m.letGo(l)
		}
		m.conclude(now, l)
	}
	m.forget()
}

// forget drops the evictions of which nothing more is to come, and that were told to be over. In a replay no caller waits to be told.
func (m *Manager) forget() {
	m.lives = slices.DeleteFunc(m.lives, func(l *Life) bool { return l.settled && (l.ended || l.gone || m.config.Replay) })
}

// cameBack tells a pod that was evicted from one that has its UID now: a kubelet keeps one UID, and one cgroup, across the
// sandboxes of a pod that it restarts.
func cameBack(was, is *stats.PodStats) bool {
	var unread stats.PodStats
	return was.CgroupID != unread.CgroupID && is.CgroupID != unread.CgroupID && was.CgroupID != is.CgroupID ||
		len(was.SandboxIDs) > 0 && len(is.SandboxIDs) > 0 && was.SandboxIDs[0] != is.SandboxIDs[0]
}
