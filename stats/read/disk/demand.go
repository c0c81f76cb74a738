package disk

import (
	"cmp"
	"time"
)

// oldest returns the pod to measure next; due is false if all measurements are recent enough. A pod
// that was never measured comes first. A pod with a walk that was cut off comes after all pods that
// were not measured since the last walk that was cut off.
func (l *Loop) oldest(found map[string]storageDirs) (uid string, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	limit, often := now.Add(-l.every), now.Add(-min(l.every, eagerEvery))
	if l.hurry {
		limit = now.Add(-min(l.every, hurriedEvery))
	}
	cutAt := l.cutAt()
	var at time.Time
	var place int // of the chosen pod
	consider := func(u string) {
		var t time.Time
		cut := false
		if s := l.pods[u]; s != nil {
			cut = s.cut
			if !s.unannounced || l.index[u] == nil {
				t = s.time
			}
		}
		young := t.After(limit) || l.lazy && !l.hurry
		if l.eager[u] {
			young = t.After(limit) && t.After(often)
		}
		unfinished := cut && (l.oneRound || t.Before(l.finishSince))
		if young && !t.Before(l.demanded) && !unfinished {
			return
		}
		comes := 0
		switch {
		case cut:
			comes = 1
		case !t.Before(cutAt):
			comes = 2
		}
		if c := cmp.Or(cmp.Compare(comes, place), t.Compare(at), cmp.Compare(u, uid)); !due || c < 0 {
			uid, at, place, due = u, t, comes, true
		}
	}
	for u := range found {
		consider(u)
	}
	for u := range l.index {
		if _, ok := found[u]; !ok {
			consider(u)
		}
	}
	return uid, due
}

// cutAt returns the end of the last walk that was cut off; zero: no such walk.
func (l *Loop) cutAt() (at time.Time) {
	for _, s := range l.pods {
		if end := s.time.Add(s.took); s.cut && end.After(at) {
			at = end
		}
	}
	return at
}

// hurriedEvery is the maximum age of measurements while a disk is short, eagerEvery the maximum age
// for pods with their own limits.
const (
	hurriedEvery = 5 * time.Second
	eagerEvery   = 10 * time.Second
)

// freshSince returns the time since which the values of a measurement that begins now must have been
// read.
func (l *Loop) freshSince(uid string, before *storage, now time.Time) time.Time {
	every := l.every
	switch {
	case l.hurry:
		every = min(every, hurriedEvery)
	case l.eager[uid]:
		every = min(every, eagerEvery)
	}
	since := now.Add(-every)
	if before != nil && before.time.Before(l.demanded) && l.demanded.After(since) {
		since = l.demanded
	}
	return since
}

// Demand requests an immediate new measurement of all pods that were measured before since.
func (l *Loop) Demand(since time.Time) {
	l.mu.Lock()
	if since.After(l.demanded) {
		l.demanded = since
	}
	l.mu.Unlock()
	l.wake()
}

// Finish requests longest turns for the pods with a walk that was cut off and began before since.
// The agent does not wait for these walks.
func (l *Loop) Finish(since time.Time) {
	l.mu.Lock()
	later := since.After(l.finishSince)
	if later {
		l.finishSince = since
	}
	l.mu.Unlock()
	if later {
		l.wake()
	}
}

// Fresh reports whether every pod was measured at or after since. A walk that was cut off counts at
// any age.
func (l *Loop) Fresh(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid := range l.known {
		if s := l.pods[uid]; s == nil || s.time.Before(since) && !s.cut {
			return false
		}
	}
	return !l.listed.IsZero()
}

// rest returns how long to wait while no measurement is due.
func (l *Loop) rest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lazy && !l.hurry && len(l.eager) == 0 {
		return relistLazy
	}
	return relist
}

// relist is the interval of the search for new pods while no measurement is due.
const relist = 5 * time.Second

// relistLazy is the interval of that search if pods are measured only on demand.
const relistLazy = time.Minute
