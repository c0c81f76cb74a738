package eviction

import (
	"fmt"
	"time"
)

// Save is what Resume needs. It shares nothing with the manager.
func (m *Manager) Save() Saved {
	var s Saved
	s.Lives, s.Shmem = m.evictions.save()
	s.Aside, s.Evicted = m.evictions.history.save()
	s.Breaker, s.Disks = m.breakers.save(), m.explain.save()
	return s
}

// Unsaved reports whether something that no eviction has changed is to be saved.
func (m *Manager) Unsaved() bool { return m.explain.unsaved }

// Resume takes back what a manager before this one has saved. The manager must not have seen
// anything yet. What cannot be true is dropped or put right, each with one error that says why;
// nothing waits longer for it than for an eviction that began now. What is left to be carried out
// of each of Lives has to be taken up, or Gone reported, for others wait for it.
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

// onClock is an instant that was saved, on the clock of now: with a monotonic reading if that has
// one, so that the wall clock may be set from then on.
func onClock(now, at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return now.Add(at.Sub(now))
}
