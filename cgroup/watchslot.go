package cgroup

import (
	"time"
)

// WatchEvents is a set of events.
type WatchEvents uint16

// The events. The first three are pressure triggers.
const (
	CPUPressed    WatchEvents = 1 << iota // a cpu trigger fired
	MemoryPressed                         // a memory trigger fired
	IOPressed                             // an io trigger fired
	// memory.events changed, of the cgroup or a descendant: limits that were hit, OOM kills
	MemoryEventsChanged
	// memory.events.local changed: limits of the cgroup itself
	MemoryEventsLocalChanged
	CgroupEventsChanged // cgroup.events changed: populated, frozen
	PIDsEventsChanged   // pids.events changed: a fork was refused
	// the cgroup of a source was removed; pending events of the source are lost
	Ended
	Refused // see Watcher.Refusals
)

// maxWoken is the maximum number of keys in a Wake. With more keys at the same time, the loop reads
// all groups.
const maxWoken = 64

// KeyEvents holds the events of one key.
type KeyEvents struct {
	Key  string
	What WatchEvents
}

// Wake holds all events between two calls of Take.
type Wake struct {
	First    time.Time           // time of the first event, as seen by the watcher's thread
	What     WatchEvents         // events of any key
	Events   uint64              // number of events
	Overflow bool                // more than maxWoken keys: read all groups
	N        int                 // number of Keys
	Keys     [maxWoken]KeyEvents // in the order of their first event
}

// slot collects the next Wake. Each watched key stores its index in that Wake, so that the cost of
// an event does not depend on the number of keys.
type slot struct {
	wake  Wake
	epoch uint64 // number of wakes taken; watched.slotIndex is valid only if watched.epoch is one more
}

// add adds an event of a watched key; of is nil for an event without a key.
func (s *slot) add(now time.Time, of *watched, what WatchEvents) {
	if s.wake.Events == 0 {
		s.wake.First = now
	}
	s.wake.Events++
	s.wake.What |= what
	if of == nil {
		return
	}
	if of.epoch != s.epoch+1 {
		of.epoch = s.epoch + 1
		of.slotIndex = -1
		if s.wake.N < maxWoken {
			of.slotIndex = s.wake.N
			s.wake.Keys[of.slotIndex] = KeyEvents{Key: of.key}
			s.wake.N++
		} else {
			s.wake.Overflow = true
		}
	}
	if of.slotIndex >= 0 {
		s.wake.Keys[of.slotIndex].What |= what
	}
}

// take moves the wake into out and starts the next.
func (s *slot) take(out *Wake) bool {
	n := s.wake.N
	out.First, out.What, out.Events, out.Overflow, out.N = s.wake.First, s.wake.What, s.wake.Events,
		s.wake.Overflow, n
	copy(out.Keys[:n], s.wake.Keys[:n])
	clear(out.Keys[n:])
	clear(s.wake.Keys[:n]) // do not keep removed keys alive
	s.wake.What, s.wake.Events, s.wake.Overflow, s.wake.N = 0, 0, false, 0
	s.epoch++
	return out.Events > 0
}
