package garbage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"jettison/reclaim"
)

// sighting is when something was first seen.
type sighting struct {
	at time.Duration // uptime
	// by the wall clock it was made later than it was seen: that was set back since
	future bool
}

// sightings are those of containers, or of sandboxes, by ID: of what may be about to start, and of
// what is or was of the future. For the rest the runtime's word is enough, and nothing is kept.
type sightings map[string]sighting

// moment is now, by the clock that people set and by the one that nobody does.
type moment struct {
	time   time.Time
	uptime time.Duration
	once   bool // there is one pass only: nothing was seen before
}

func (c *Collector) moment() moment { return moment{c.now(), c.uptime(), c.o.Once} }

// see notes that something is there, and returns since when it is known to be. Where nothing was
// seen before, that is by the wall clock, but not from before the boot.
func (s sightings) see(m moment, before sightings, id string, told time.Time) (since time.Time,
	future bool) {
	one, was := before[id]
	if !was {
		one.at = m.uptime
	}
	one.future = one.future || told.After(m.time)
	s[id] = one
	boot := m.time.Add(-m.uptime)
	switch {
	case !m.once:
		return m.time.Add(one.at - m.uptime), one.future
	case one.future:
		return m.time, true
	case told.Before(boot):
		return boot, false
	}
	return told, false
}

// date sets right when containers and sandboxes were created, where the wall clock was set since,
// and says since when they are known. By that clock one may be 56 years old that was created a
// moment ago, and one that has ended long ago not be there yet.
func (c *Collector) date(l *reclaim.Look, sandboxes map[string]*reclaim.Sandbox) {
	m, containers, pods := c.moment(), c.containers, c.sandboxes
	c.containers, c.sandboxes = sightings{}, sightings{}
	attempts, future := make([]attempt, len(l.Containers)), false
	for i := range l.Containers {
		one := &l.Containers[i]
		a := attempt{sandbox: one.SandboxID, pod: one.PodUID, name: one.Name, number: one.Attempt,
			at: &one.CreatedAt}
		if s := sandboxes[one.SandboxID]; s != nil && a.pod == "" {
			a.pod = s.PodUID
		}
		if _, was := containers[one.ID]; was || one.State == reclaim.Created ||
			one.CreatedAt.After(m.time) {
			one.Seen, a.future = c.containers.see(m, containers, one.ID, one.CreatedAt)
			// no later pass will have known it for longer
			if m.once && a.future && one.State != reclaim.Created {
				one.Seen = m.time.Add(-min(c.o.Policy.Container.MinAge, m.uptime))
			}
			one.CreatedAt = earlier(one.CreatedAt, one.Seen)
			future = future || a.future
		}
		attempts[i] = a
	}
	// A sandbox has one attempt after the other, whatever the clock says. A client may count anew in
	// the next one: so of the attempts in all of a pod's sandboxes the later ones tell only of what is
	// of the future, of which nothing else is known.
	inOrder(attempts, func(a *attempt) string { return a.sandbox }, false)
	if future {
		inOrder(attempts, func(a *attempt) string { return a.pod }, true)
	}
	attempts, future = attempts[:0], false
	for i := range l.Sandboxes {
		s := &l.Sandboxes[i]
		a := attempt{pod: s.PodUID, number: s.Attempt, at: &s.CreatedAt}
		if _, was := pods[s.ID]; was || !s.NotReady || s.CreatedAt.After(m.time) {
			s.Seen, a.future = c.sandboxes.see(m, pods, s.ID, s.CreatedAt)
			s.CreatedAt = earlier(s.CreatedAt, s.Seen)
			future = future || a.future
		}
		attempts = append(attempts, a)
	}
	if future {
		inOrder(attempts, func(a *attempt) string { return a.pod }, true)
	}
}

// dateReady is date for a ready sandbox that was listed since.
func (c *Collector) dateReady(s *reclaim.Sandbox) {
	s.Seen, _ = c.sandboxes.see(c.moment(), c.sandboxes, s.ID, s.CreatedAt)
}

// age is how old a container is at least that may be about to start.
func (c *Collector) age(id string, told time.Time) time.Duration {
	m := c.moment()
	one := reclaim.Container{CreatedAt: told}
	one.Seen, _ = c.containers.see(m, c.containers, id, told)
	return one.Age(m.time)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// attempt is one at a container or a sandbox.
type attempt struct {
	sandbox, pod, name string
	number             uint32
	at                 *time.Time // when it was made; zero: not known
	future             bool
}

// inOrder has no attempt be made after later ones of the same. future: only those are moved that
// were of the future.
func inOrder(attempts []attempt, of func(*attempt) string, future bool) {
	same := func(a, b *attempt) int {
		return cmp.Or(strings.Compare(of(a), of(b)), strings.Compare(a.name, b.name))
	}
	slices.SortFunc(attempts,
		func(a, b attempt) int { return cmp.Or(same(&a, &b), cmp.Compare(b.number, a.number)) })
	// when the first of the later ones was made, and when the first of those so far; zero: not known
	var later, first time.Time
	for i := range attempts {
		a := &attempts[i]
		switch {
		case i == 0 || same(&attempts[i-1], a) != 0:
			later, first = time.Time{}, time.Time{}
		case attempts[i-1].number != a.number:
			later = first
		}
		if !later.IsZero() && (a.future || !future) {
			*a.at = earlier(*a.at, later)
		}
		if !a.at.IsZero() && (first.IsZero() || a.at.Before(first)) {
			first = *a.at
		}
	}
}
