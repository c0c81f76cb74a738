package garbage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"jettison/reclaim"
)

// sighting is the first time that a look found a container or sandbox.
type sighting struct {
	at time.Duration // uptime
	// its creation time was in the future at a sighting: the wall clock was set back
	future bool
}

// sightings are the sightings of containers, or of sandboxes, by ID. They contain those that may be
// about to start, and those with a creation time in the future. For the others the runtime's
// timestamp is sufficient.
type sightings map[string]sighting

// moment is the current time on the wall clock, which can be set, and on CLOCK_BOOTTIME, which
// cannot.
type moment struct {
	time   time.Time
	uptime time.Duration
	once   bool // only one pass: nothing was seen before
}

func (c *Collector) moment() moment { return moment{c.now(), c.uptime(), c.o.Once} }

// see records a sighting and returns since when the object is known to exist. With a single pass,
// which has no earlier sightings, it returns the runtime's creation time, but none before the boot,
// and the current time if the creation time is unknown.
func (s sightings) see(m moment, before sightings, id string, created time.Time) (since time.Time,
	future bool) {
	one, was := before[id]
	if !was {
		one.at = m.uptime
	}
	one.future = one.future || created.After(m.time)
	s[id] = one
	boot := m.time.Add(-m.uptime)
	switch {
	case !m.once:
		return m.time.Add(one.at - m.uptime), one.future
	case one.future || created.IsZero():
		return m.time, one.future
	case created.Before(boot):
		return boot, false
	}
	return created, false
}

// date corrects the creation times of containers and sandboxes after changes of the wall clock, and
// sets Seen. By that clock a new container may be 56 years old, and one that ended long ago may be
// created in the future.
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
			one.CreatedAt.IsZero() || one.CreatedAt.After(m.time) {
			one.Seen, a.future = c.containers.see(m, containers, one.ID, one.CreatedAt)
			// no later pass follows that could observe a greater age
			if m.once && a.future && one.State != reclaim.Created {
				one.Seen = m.time.Add(-min(c.o.Policy.Container.MinAge, m.uptime))
			}
			one.CreatedAt = earlier(one.CreatedAt, one.Seen)
			future = future || a.future
		}
		attempts[i] = a
	}
	// The attempts in one sandbox follow each other, regardless of the clock. A client may restart the
	// count in the next sandbox. So the order of attempts across a pod's sandboxes is used only for
	// creation times in the future, for which nothing better is known.
	inOrder(attempts, func(a *attempt) string { return a.sandbox }, false)
	if future {
		inOrder(attempts, func(a *attempt) string { return a.pod }, true)
	}
	attempts, future = attempts[:0], false
	for i := range l.Sandboxes {
		s := &l.Sandboxes[i]
		a := attempt{pod: s.PodUID, number: s.Attempt, at: &s.CreatedAt}
		if _, was := pods[s.ID]; was || !s.NotReady || s.CreatedAt.IsZero() || s.CreatedAt.After(m.time) {
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

// dateReady does the same as date for a ready sandbox that was listed later.
func (c *Collector) dateReady(s *reclaim.Sandbox) {
	s.Seen, _ = c.sandboxes.see(c.moment(), c.sandboxes, s.ID, s.CreatedAt)
}

// age returns the minimum age of a container that may be about to start.
func (c *Collector) age(id string, created time.Time) time.Duration {
	m := c.moment()
	one := reclaim.Container{CreatedAt: created}
	one.Seen, _ = c.containers.see(m, c.containers, id, created)
	age, _ := one.Age(m.time) // Seen is set
	return age
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// attempt is one attempt of a container or a sandbox.
type attempt struct {
	sandbox, pod, name string
	number             uint32
	at                 *time.Time // creation time; zero: unknown
	future             bool
}

// inOrder moves creation times so that no attempt is later than a higher-numbered one of the same
// owner (of) and name. With future set it moves only creation times in the future.
func inOrder(attempts []attempt, of func(*attempt) string, future bool) {
	same := func(a, b *attempt) int {
		return cmp.Or(strings.Compare(of(a), of(b)), strings.Compare(a.name, b.name))
	}
	slices.SortFunc(attempts,
		func(a, b attempt) int { return cmp.Or(same(&a, &b), cmp.Compare(b.number, a.number)) })
	// earliest creation time of the higher-numbered attempts, and of all so far; zero: unknown
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
