package eviction

import "time"

// Begin reports that an eviction has begun: its victim is pinned. met is the threshold that asked
// for it, zero for a pod's own limit. The last observation counts as the value at that time. An
// earlier eviction of the same pod is superseded.
func (m *Manager) Begin(at Stamp, e Eviction, met Met) *Life {
	l := m.evictions.begin(at, e, met, &m.watch, m.lastCheap.Node.Memory.ShmemBytes)
	m.explain.noteSuspected(at.Time, &l.e, &m.watch.disks)
	m.noteBegun(l)
	return l
}

// noteBegun stores that an eviction began that the last look asked for.
func (m *Manager) noteBegun(l *Life) {
	if w := m.watch.watchedBy(&l.e, &l.met.Threshold); w != nil {
		m.breakers.noteTrial(w)
	}
	m.looks.ledToEviction()
}

// Hasten reports that a kill cut the grace period of an eviction short, for e and met. An eviction
// for a disk stays for the disk unless e is for a disk too: the victim's files must still be
// removed, and the disk waits for them.
func (m *Manager) Hasten(at Stamp, l *Life, e Eviction, met Met) {
	suspected := l.e.suspected
	if m.evictions.hasten(at, l, e, met, &m.watch, m.lastCheap.Node.Memory.ShmemBytes) {
		if !suspected {
			m.explain.noteSuspected(at.Time, &e, &m.watch.disks)
		}
		m.noteBegun(l)
		return
	}
	m.looks.ledToEviction()
}

// HastenRefused reports that the kernel refused the kill that was to cut a grace period short. It
// returns true if the runtime stops the victim within a second anyway, for a disk's hard threshold;
// other pods may then be evicted. Otherwise the caller begins the eviction again.
func (m *Manager) HastenRefused(l *Life) (leftToRuntime bool) {
	if leftToRuntime = l.e.hard && l.e.Disk(); leftToRuntime {
		l.killRefused = true
		m.looks.ledToEviction()
	}
	return leftToRuntime
}

// HastenUnneeded reports that a grace period was not cut short because a new measurement found
// enough available. The eviction continues, and the next look does not wait.
func (m *Manager) HastenUnneeded() { m.looks.ledToEviction() }

// Killed reports that the kill was written. If the kernel refused it, the runtime stops the pod.
func (m *Manager) Killed(at Stamp, l *Life) { l.killed = at }

// Emptied reports that no process is left. For a pod that was set aside, the outcome becomes
// unknown again, but thresholds do not wait for its returns.
func (m *Manager) Emptied(at Stamp, l *Life) { m.evictions.emptied(at, l, &m.watch) }

// CacheDropped reports that a dead victim's page cache was dropped, as far as possible.
func (m *Manager) CacheDropped(l *Life) { l.cacheDropped = true }

// Cleaned reports that the runtime has cleaned up, or never will. With a zero time, any reading of
// a disk counts as later than the clean-up.
func (m *Manager) Cleaned(at Stamp, l *Life) { m.evictions.cleaned(at, l) }

// MarkUndying reports that the victim survived its kill. The pod is set aside, longer each time,
// and other pods may be evicted.
func (m *Manager) MarkUndying(now time.Time, l *Life) {
	m.evictions.markUndying(now, l, &m.watch)
	if l.e.suspected && l.undying {
		m.explain.endBackoff(&l.e, &m.watch.disks)
	}
}

// Abandon reports that nothing is left to carry out for an eviction that an earlier process began.
// Its outcome is not reported. An undying pod stays set aside, because it has not died.
func (m *Manager) Abandon(now time.Time, l *Life) { m.evictions.abandon(now, l, &m.watch) }

// SetPodAside reports that a pod cannot be killed. The pod is ranked last for a while.
func (m *Manager) SetPodAside(now time.Time, uid string) { m.evictions.history.rankLast(now, uid) }

// Acknowledge acknowledges the Outcomes and Finished of the last Ready, so that they are not
// returned again.
func (m *Manager) Acknowledge() { m.evictions.advance() }

// Relief returns the next action for a Decision with reclaim requests and without an eviction. On
// ReliefBegin the caller begins a pass for them, and reports its end with Relieved.
func (m *Manager) Relief(now time.Time, d *Decision) Relief {
	next := m.relief.request(now, d.Reclaim, &m.watch)
	if m.explain.anyUrgent(d.Reclaim, &m.watch) {
		switch next {
		case ReliefBegin:
			return ReliefBeginNow
		case ReliefWait:
			return ReliefNone
		}
	}
	return next
}

// Relieved reports that a pass for a disk has ended.
func (m *Manager) Relieved(now time.Time) { m.relief.doneAt = now }
