package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// Evictions that others wait for: what they return is on its way, and the next victim would die for nothing.

// dip is the share of what was available that a runtime takes for itself while it tears a pod down: an eighth at most.
const dip = 8

// over reports whether nothing more is to be expected of an eviction. What a disk gives back comes with the clean-up or after it: half of
// what is expected, measured after the clean-up, is enough to go by.
func (m *Manager) over(now time.Time, l *Life) bool {
	switch {
	case !l.departed():
		return false
	case l.back:
		return true
	case !l.e.kind.disk():
		return l.clean || now.Sub(l.emptied.Time) >= l.limit()
	case !l.clean:
		return now.Sub(l.emptied.Time) >= cleanLimit
	}
	cleaned := l.cleaned.Time
	for i := range m.watched {
		o := &m.watched[i].observed
		if m.watched[i].Signal != l.e.Signal || !o.OK || o.Time.IsZero() || cleaned.IsZero() {
			continue
		}
		back := o.Better(l.level) && o.Value-l.level >= l.e.Returns/2
		return o.Time.After(cleaned) && (back || now.Sub(cleaned) >= diskSettle)
	}
	return true
}

// blocked says why a threshold has to wait for what earlier evictions return; empty: it has not. Evictions for local storage hold
// up no threshold, those for disks hold up only disks, nothing else holds up memory, and gentle ones hold up no hard threshold, not even
// when they are over: soft never delays hard.
func (m *Manager) blocked(now time.Time, w *watched) string {
	var last *Life
	var returns uint64
	for _, l := range m.lives {
		memory := l.e.kind == kindMemory || l.e.kind == kindSwap
		if l.settled || l.e.Local() || m.over(now, l) || w.Hard() && !l.e.hard || w.info.kind == kindMemory && !memory ||
			l.e.kind.disk() && !w.info.kind.disk() {
			continue
		}
		last = l
		if l.e.Signal == w.Signal {
			returns = add(returns, l.e.Returns)
		}
	}
	if last == nil || last.e.Signal == w.Signal && outgrown(w, last, returns) {
		return ""
	}
	if last.departed() {
		return "what the eviction of pod " + last.e.Pod.PodRef.UID + " returns is still on its way"
	}
	return "the eviction of pod " + last.e.Pod.PodRef.UID + " is under way"
}

// outgrown reports whether the shortage has grown by more than what is on its way, and by more than a dip, which is the runtime's
// own work. Once the victim is dead, some of what it returns is there already, and what one returns that was not measured is not
// known: then less than half of what was available when it was killed must be left.
func outgrown(w *watched, last *Life, returns uint64) bool {
	switch {
	case !w.Amount() || w.observed.Value >= last.level:
		return false
	case last.departed() || returns == 0:
		return (!last.clean || last.e.kind.disk()) && w.observed.HalfGone(last.level)
	}
	return last.level-w.observed.Value > max(returns, last.level/dip)
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
			c := Candidate{Pod: &in.Summary.Pods[at], Object: in.Pods[l.e.Pod.PodRef.UID]}
			m.measure(&c, w)
			if r := expected(&c, w); r.OK && r.V <= implausible {
				l.e.Returns = max(l.e.Returns, r.V)
			}
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
	for _, l := range m.lives {
		l.settled = l.settled || m.over(now, l) && m.count(l)
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
