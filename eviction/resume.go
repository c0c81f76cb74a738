package eviction

import (
	"fmt"
	"time"
)

// Save returns the state that Resume needs. It shares no memory with the manager.
func (m *Manager) Save() Saved {
	var s Saved
	s.Lives, s.Shmem = m.evictions.save()
	s.Aside, s.Evicted = m.evictions.history.save()
	s.Breaker, s.Disks = m.breakers.save(), m.explain.save()
	return s
}

// NeedsSave reports whether something must be saved that no eviction has changed.
func (m *Manager) NeedsSave() bool { return m.explain.unsaved }

// Resume restores the state that an earlier manager saved. The manager must not have made a look
// yet. Implausible values are dropped or corrected, each with one error that states the reason.
// Nothing waits longer for a restored eviction than for one that begins now. Other thresholds wait
// for each of Lives: the caller must carry out the rest of it or call Abandon.
func (m *Manager) Resume(now time.Time, s Saved) (dropped []error) {
	drop := func(format string, args ...any) { dropped = append(dropped, fmt.Errorf(format, args...)) }
	m.evictions.resume(now, &s, drop)
	m.evictions.history.resume(now, &s, drop)
	m.breakers.resume(now, &s, m.watch.all, drop)
	if m.config.Explain {
		m.explain.resume(now, s.Disks, drop)
	}
	return dropped
}

// onClock returns a saved instant on the clock of now. The result has a monotonic reading if now
// has one, so that later changes of the wall clock do no harm.
func onClock(now, at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return now.Add(at.Sub(now))
}
