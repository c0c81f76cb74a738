package eviction

import "time"

// Begin takes that an eviction is carried out: its victim is pinned. met is the threshold that
// asked for it, zero for a pod's own limit. How much was available then is what was observed last.
// An earlier eviction of the same pod ends with it.
func (m *Manager) Begin(at Stamp, e Eviction, met Met) *Life {
	l := m.evictions.begin(at, e, met, &m.watch, m.cheap.Node.Memory.ShmemBytes)
	m.taken(l)
	return l
}

// taken notes that an eviction is the one that was asked for last.
func (m *Manager) taken(l *Life) {
	if w := m.watch.watchedBy(&l.e, &l.met.Threshold); w != nil {
		m.breakers.letThrough(w)
	}
	m.looks.ledToEviction()
}

// Hasten takes that the grace period of an eviction was cut short by a kill: e and met are what
// asked for that. A disk's victim stays the disk's, whatever else was short meanwhile: its files
// are still to be removed, and the disk waits for them.
func (m *Manager) Hasten(at Stamp, l *Life, e Eviction, met Met) {
	if m.evictions.hasten(at, l, e, met, &m.watch, m.cheap.Node.Memory.ShmemBytes) {
		m.taken(l)
		return
	}
	m.looks.ledToEviction()
}

// HastenRefused takes that the kernel refuses to kill a victim whose grace period was to be cut
// short. Where the runtime stops it in a second as it is, for a disk's hard threshold, it is left
// to that (true), and others get their turn. Else its eviction is to begin anew.
func (m *Manager) HastenRefused(l *Life) (left bool) {
	if left = l.e.hard && l.e.Disk(); left {
		l.refused = true
		m.looks.ledToEviction()
	}
	return left
}

// Unneeded takes that a grace period was not cut short after all, for enough was available again
// when that was measured once more. The eviction goes on, so that the look which asked for it was
// not in vain: the next one does not wait.
func (m *Manager) Unneeded() { m.looks.ledToEviction() }

// Killed takes that the kill was written. Where the kernel refused it, the runtime is what stops
// the pod.
func (m *Manager) Killed(at Stamp, l *Life) { l.killed = at }

// Emptied takes that no process is left. One that had been set aside starts afresh; what it returns
// is not waited for any more.
func (m *Manager) Emptied(at Stamp, l *Life) { m.evictions.emptied(at, l, &m.watch) }

// Uncached takes that a dead victim's page cache was given back, as far as that could be.
func (m *Manager) Uncached(l *Life) { l.uncached = true }

// Cleaned takes that the runtime has cleaned up, or will not. With a zero time the next reading of
// a disk counts, whenever it was taken.
func (m *Manager) Cleaned(at Stamp, l *Life) { m.evictions.cleaned(at, l) }

// Refused takes that the victim does not die: it is set aside, longer each time, and others get
// their turn.
func (m *Manager) Refused(now time.Time, l *Life) { m.evictions.refused(now, l, &m.watch) }

// Gone takes that nothing is left to be carried out for an eviction that a process before this one
// has begun: its outcome is not told. A pod that did not die stays set aside: that it is left alone
// is no death.
func (m *Manager) Gone(now time.Time, l *Life) { m.evictions.gone(now, l, &m.watch) }

// Aside takes that a pod cannot be killed: it is ranked last for a while.
func (m *Manager) Aside(now time.Time, uid string) { m.evictions.history.putAside(now, uid) }

// Advance takes that the Outcomes and Finished of the last Ready were seen to: they are not told
// again.
func (m *Manager) Advance() { m.evictions.advance() }

// Relief answers for a Decision with wishes and without an eviction. With ReliefBegin the caller
// begins a pass for them, and tells of its end with Relieved.
func (m *Manager) Relief(now time.Time, d *Decision) Relief {
	return m.relief.ask(now, d.Reclaim, &m.watch)
}

// Relieved takes that a pass for a disk has ended.
func (m *Manager) Relieved(now time.Time) { m.relief.done = now }
