package cgroup

import (
	"time"
)

// Happened is a set of what can happen to what is watched.
type Happened uint16

// What can happen. The first three are pressure triggers.
const (
	CPUPressed    Happened = 1 << iota // a cpu trigger fired
	MemoryPressed                      // a memory trigger
	IOPressed                          // an io trigger
	// memory.events changed, here or below: limits that were hit, OOM kills
	MemoryEventsChanged
	// memory.events.local changed: limits of the cgroup itself
	MemoryEventsLocalChanged
	CgroupEventsChanged // cgroup.events changed: populated, frozen
	PIDsEventsChanged   // pids.events changed: a fork was refused
	// a source is gone, with its cgroup; what else it had to tell went with it
	Ended
	Refused // see Watcher.Refusals
)

// maxWoken is how many keys a Wake names. More at once are a storm, and looking at all is what is
// left.
const maxWoken = 64

// Woken is what happened to one key.
type Woken struct {
	Key  string
	What Happened
}

// Wake is all that happened between two calls of Take.
type Wake struct {
	First    time.Time       // when the first of it did, as the watcher's thread saw it
	What     Happened        // to anything at all
	Events   uint64          // how many there were
	Overflow bool            // to more keys than there is room for: look at all
	N        int             // of Keys
	Keys     [maxWoken]Woken // in the order of their first event
}

// slot gathers the next Wake. A key is found in it by where it was put, so that an event costs the
// same however many there are.
type slot struct {
	wake  Wake
	epoch uint64 // how many were taken; watched.at counts only if watched.epoch is one more
}

// add puts an event in; of nil: of no key.
func (s *slot) add(now time.Time, of *watched, what Happened) {
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
		of.at = -1
		if s.wake.N < maxWoken {
			of.at = s.wake.N
			s.wake.Keys[of.at] = Woken{Key: of.key}
			s.wake.N++
		} else {
			s.wake.Overflow = true
		}
	}
	if of.at >= 0 {
		s.wake.Keys[of.at].What |= what
	}
}

// take hands the wake out and begins the next.
func (s *slot) take(out *Wake) bool {
	n := s.wake.N
	out.First, out.What, out.Events, out.Overflow, out.N = s.wake.First, s.wake.What, s.wake.Events,
		s.wake.Overflow, n
	copy(out.Keys[:n], s.wake.Keys[:n])
	clear(out.Keys[n:])
	clear(s.wake.Keys[:n]) // a key that was removed is not kept alive
	s.wake.What, s.wake.Events, s.wake.Overflow, s.wake.N = 0, 0, false, 0
	s.epoch++
	return out.Events > 0
}
