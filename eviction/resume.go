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
	s.Breaker, s.Disks, s.Suspicions = m.breakers.save(), m.explain.save(), m.explain.backoffs.save()
	return s
}

// NeedsSave reports whether quiet disks or doubts about disks have changed since the last Save.
func (m *Manager) NeedsSave() bool { return m.explain.unsaved }

// Resume restores the state that an earlier manager saved. It must be called before the first look.
// Implausible values are dropped or corrected, each with one error that states the reason.
// Thresholds wait for each restored eviction (see Lives), but no longer than for one that begins
// now. The caller must complete each of them or call Abandon.
func (m *Manager) Resume(now time.Time, s Saved) (dropped []error) {
	drop := func(format string, args ...any) { dropped = append(dropped, fmt.Errorf(format, args...)) }
	m.evictions.resume(now, &s, drop)
	m.evictions.history.resume(now, &s, drop)
	m.breakers.resume(now, &s, m.watch.all, drop)
	if m.config.Explain {
		m.explain.resume(now, s.Disks, drop)
		m.explain.backoffs.resume(now, s.Suspicions, drop)
	}
	return dropped
}

// onClock converts a saved instant to the clock of now. The result has a monotonic reading if now
// has one, so that later changes of the wall clock do no harm.
func onClock(now, at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return now.Add(at.Sub(now))
}
