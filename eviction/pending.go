package eviction

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"jettison/stats"
)

// settleLimit is how long, after a victim died, no other one is chosen unless the shortage gets much worse: a runtime that
// tears a pod down takes memory first, and what lay in the pod's /dev/shm comes back only when it is unmounted.
const settleLimit = 2 * time.Second

// sharedLimit is the same where the victim held much in /dev/shm or in volumes in memory: that comes back when it is unmounted,
// by the agent, the runtime, or whoever owns the volume, which takes as long as it takes.
const sharedLimit = 15 * time.Second

// diskLimit is the same for disks, where containers, logs and volumes have to be removed first. diskSettle is how long after that the
// disk may take to show it: a runtime frees what a container wrote in its own time (containerd's garbage collector pauses for fifty
// times as long as it worked last). Meanwhile the next one goes only if much less is left.
const (
	diskLimit  = 2 * time.Minute
	diskSettle = time.Minute
)

// How long a pod that was killed and did not die is ranked last; doubled each time, up to the maximum.
const (
	setAsideFirst = 30 * time.Second
	setAsideMax   = 5 * time.Minute
)

// dip is the share of what was available that a runtime takes for itself while it tears a pod down: an eighth at most.
const dip = 8

// breakerLimit is after how many evictions in a row that did not lower the pressure the breaker stops.
const breakerLimit = 3

// rememberEvicted is how long a pod that was evicted is recognised when it comes back.
const rememberEvicted = time.Hour

// pending is an eviction from its beginning until what it returns is there.
type pending struct {
	e     Eviction
	level uint64 // available when it began, in the signal's unit
	died  bool
	// until: what a dead one returns is awaited; zero while it is dying.
	until   time.Time
	cleaned bool // the runtime has cleaned up after it
	// ended is when, as far as it has: a disk is measured now and then, so only a reading from after it counts.
	ended time.Time
}

// over: nothing more is to be expected of an eviction. What a disk gives back comes with the clean-up or after it: half of what is
// expected, measured after the clean-up, is enough to go by.
func (m *Manager) over(now time.Time, p *pending) bool {
	switch {
	case !p.died:
		return false
	case !p.e.kind.disk():
		return p.cleaned || !now.Before(p.until)
	case !p.cleaned:
		return !now.Before(p.until.Add(diskLimit - settleLimit))
	}
	for i := range m.watched {
		o := &m.watched[i].observed
		if m.watched[i].Signal != p.e.Signal || !o.OK || o.Time.IsZero() || p.ended.IsZero() {
			continue
		}
		back := o.Better(p.level) && o.Value-p.level >= p.e.Returns/2
		return o.Time.After(p.ended) && (back || now.Sub(p.ended) >= diskSettle)
	}
	return true
}

type setAside struct {
	until time.Time
	next  time.Duration // how long the next time
}

// evicted remembers a pod that died.
type evicted struct {
	times int
	last  time.Time
}

// Begin tells the manager that an eviction is being carried out, and how much was available, in the signal's unit, when the pod was
// killed.
func (m *Manager) Begin(e Eviction, available uint64) {
	uid := e.Pod.PodRef.UID
	m.pending = slices.DeleteFunc(m.pending, func(p *pending) bool { return p.e.Pod.PodRef.UID == uid })
	m.pending = append(m.pending, &pending{e: e, level: available})
}

// Done tells what became of it, and when. A pod that did not die is set aside, longer each time; one that died starts afresh, and
// nobody else is chosen for the same shortage until the runtime has cleaned up after it (Cleaned) or two seconds are over.
func (m *Manager) Done(now time.Time, uid string, died bool) {
	maps.DeleteFunc(m.aside, func(_ string, a setAside) bool { return now.Sub(a.until) > 2*setAsideMax })
	maps.DeleteFunc(m.evicted, func(_ string, e evicted) bool { return now.Sub(e.last) > rememberEvicted })
	if !died {
		m.pending = slices.DeleteFunc(m.pending, func(p *pending) bool { return p.e.Pod.PodRef.UID == uid })
		a := m.aside[uid]
		a.next = min(max(a.next*2, setAsideFirst), setAsideMax)
		a.until = now.Add(a.next)
		m.aside[uid] = a
		return
	}
	delete(m.aside, uid)
	m.evicted[uid] = evicted{times: m.evicted[uid].times + 1, last: now}
	for _, p := range m.pending {
		if p.e.Pod.PodRef.UID == uid {
			p.died, p.until = true, now.Add(p.e.settles())
			if o := m.Observed(p.e.Signal); p.e.kind.disk() && o.OK { // it wrote on while it was being stopped
				p.level = min(p.level, o.Value)
			}
		}
	}
}

// settles is how long what a dead victim returns may take. Shared memory counts that is more than a dip.
func (e *Eviction) settles() time.Duration {
	if shared := e.Pod.Memory.ShmemBytes; e.kind == kindMemory && shared.OK && shared.V > leastShared {
		return sharedLimit
	}
	return settleLimit
}

// leastShared is how much shared memory is worth waiting for.
const leastShared = 16 << 20

// Cleaned tells that the runtime has cleaned up after a pod, and when: what its eviction returns is there. With a zero time the next
// reading of a disk counts, whenever it was taken.
func (m *Manager) Cleaned(now time.Time, uid string) {
	for _, p := range m.pending {
		if p.e.Pod.PodRef.UID == uid {
			p.cleaned, p.ended = true, now
		}
	}
}

// dying is the eviction of a pod that is not over yet because the pod still lives; nil: none.
func (m *Manager) dying(uid string) *pending {
	for _, p := range m.pending {
		if !p.died && p.e.Pod.PodRef.UID == uid {
			return p
		}
	}
	return nil
}

// gentle: it has a grace period, which a hard threshold does not wait for.
func (p *pending) gentle() bool { return !p.e.hard && !p.e.Local() }

// Worse reports whether less than half of what was available when the last victim was killed is available now: then somebody
// else is eating it, faster than what the victim returns. A small dip is the runtime's own work.
func (m *Manager) Worse(met Met) bool {
	for i := len(m.pending) - 1; i >= 0; i-- {
		if p := m.pending[i]; p.e.Signal == met.Threshold.Signal && !p.cleaned {
			return met.Observed.HalfGone(p.level)
		}
	}
	return false
}

// blocked says why a threshold has to wait for what earlier evictions return; empty: it has not. Evictions for local storage hold
// up nobody, those for disks hold up only disks, nothing else holds up memory, and gentle ones hold up no hard threshold, not even
// when they are over: soft never delays hard.
func (m *Manager) blocked(now time.Time, w *watched) string {
	var last *pending
	var returns uint64
	for _, p := range m.pending {
		memory := p.e.kind == kindMemory || p.e.kind == kindSwap
		if p.e.Local() || m.over(now, p) || w.Hard() && !p.e.hard || w.info.kind == kindMemory && !memory ||
			p.e.kind.disk() && !w.info.kind.disk() {
			continue
		}
		last = p
		if p.e.Signal == w.Signal {
			returns = add(returns, p.e.Returns)
		}
	}
	if last == nil || last.e.Signal == w.Signal && m.outgrown(w, last, returns) {
		return ""
	}
	if last.died {
		return "what the eviction of pod " + last.e.Pod.PodRef.UID + " returns is still on its way"
	}
	return "the eviction of pod " + last.e.Pod.PodRef.UID + " is under way"
}

// outgrown reports whether the shortage has grown by more than what is on its way, and by more than a dip, which is the runtime's
// own work. Once the victim is dead, some of what it returns is there already, and what one returns that was not measured is not
// known: then less than half of what was available when it was killed must be left.
func (m *Manager) outgrown(w *watched, last *pending, returns uint64) bool {
	switch {
	case !w.Amount() || w.observed.Value >= last.level:
		return false
	case last.died || returns == 0:
		return (!last.cleaned || last.e.kind.disk()) && w.observed.HalfGone(last.level)
	}
	return last.level-w.observed.Value > max(returns, last.level/dip)
}

// remeasure follows pods that are being evicted gently: one that leaks goes on leaking, and what it takes meanwhile it returns, too.
func (m *Manager) remeasure(in Input) {
	for _, p := range m.pending {
		if p.died {
			continue
		}
		at := slices.IndexFunc(in.Summary.Pods, func(s stats.PodStats) bool { return s.PodRef.UID == p.e.Pod.PodRef.UID })
		for i := range m.watched {
			w := &m.watched[i]
			if at < 0 || w.Signal != p.e.Signal || in.Summary.Pods[at].Memory.Quick {
				continue
			}
			c := Candidate{Pod: &in.Summary.Pods[at], Object: in.Pods[p.e.Pod.PodRef.UID]}
			m.measure(&c, w)
			if r := expected(&c, w); r.OK && r.V <= implausible {
				p.e.Returns = max(p.e.Returns, r.V)
			}
		}
	}
}

// settle ends what is over: it recognises pods that came back, and judges whether evictions lowered the pressure.
func (m *Manager) settle(now time.Time, s *stats.Summary) {
	if m.config.Breaker {
		m.calm()
	}
	if len(m.pending) == 0 {
		return
	}
	for i := range s.Pods {
		// Another cgroup or sandbox has the UID: the one that was killed is gone.
		if p := m.dying(s.Pods[i].PodRef.UID); p != nil && cameBack(&p.e.Pod, &s.Pods[i]) {
			m.Done(now, p.e.Pod.PodRef.UID, true)
			p.cleaned = true
		}
	}
	m.pending = slices.DeleteFunc(m.pending, func(p *pending) bool {
		if !m.over(now, p) {
			return false
		}
		if p.e.Local() || !m.config.Breaker {
			return true
		}
		for i := range m.watched {
			w := &m.watched[i]
			if w.Signal != p.e.Signal || w.Hard() != p.e.hard {
				continue
			}
			if !w.observed.OK {
				return false
			}
			if w.met && !w.observed.Better(p.level) {
				m.futile[p.e.kind]++
			} else {
				m.futile[p.e.kind] = 0
			}
			break
		}
		return true
	})
}

// cameBack tells a pod that was evicted from one that has its UID now: a kubelet keeps one UID, and one cgroup, across the
// sandboxes of a pod that it restarts.
func cameBack(was, is *stats.PodStats) bool {
	var unread stats.PodStats
	return was.CgroupID != unread.CgroupID && is.CgroupID != unread.CgroupID && was.CgroupID != is.CgroupID ||
		len(was.SandboxIDs) > 0 && len(is.SandboxIDs) > 0 && was.SandboxIDs[0] != is.SandboxIDs[0]
}

// calm lets the breaker act again for what is not short any more.
func (m *Manager) calm() {
	var short, observed [kinds]bool
	for i := range m.watched {
		w := &m.watched[i]
		observed[w.info.kind] = observed[w.info.kind] || w.observed.OK
		short[w.info.kind] = short[w.info.kind] || !w.since.IsZero()
	}
	for k := range m.futile {
		if observed[k] && !short[k] {
			m.futile[k] = 0
		}
	}
}

// stoppedBecause names what grows instead.
func (m *Manager) stoppedBecause(w *watched, growing []Growth) string {
	reason := fmt.Sprintf("%d evictions did not lower the pressure on %s: stopped", m.futile[w.info.kind], w.Signal)
	var most Growth
	for _, g := range growing {
		if g.Bytes > most.Bytes {
			most = g
		}
	}
	if most.Bytes > 0 {
		reason += fmt.Sprintf(", %s grows instead, by %s", most.Cgroup, bytesQuantity(uint64(most.Bytes)))
	}
	return reason
}
