package disk

import (
	"cmp"
	"time"
)

// oldest chooses the pod to measure next; due is false if all figures are recent enough. A pod
// that was never measured comes first. A pod with a walk that was cut off comes after all
// others that were not measured since the last such walk.
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
	var place int // of the chosen one
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
		if young && !t.Before(l.demanded) && !(cut && t.Before(l.finishSince)) {
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

// cutAt returns the end of the last walk that was cut off; zero: there was none.
func (l *Loop) cutAt() (at time.Time) {
	for _, s := range l.pods {
		if end := s.time.Add(s.took); s.cut && end.After(at) {
			at = end
		}
	}
	return at
}

// hurriedEvery is the maximum age of figures while a disk is short, eagerEvery that of pods
// with their own limits.
const (
	hurriedEvery = 5 * time.Second
	eagerEvery   = 10 * time.Second
)

// Demand immediately renews figures measured before since.
func (l *Loop) Demand(since time.Time) {
	l.mu.Lock()
	if since.After(l.demanded) {
		l.demanded = since
	}
	l.mu.Unlock()
	l.wake()
}

// Finish walks the pods again that had a walk from before since cut off, in the longest turn.
// The agent does not wait for that.
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

// Fresh reports whether every pod's figure was measured at or after since. A figure from a walk
// that was cut off counts at any age.
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

// rest returns the wait while no figure is due.
func (l *Loop) rest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lazy && !l.hurry && len(l.eager) == 0 {
		return relistLazy
	}
	return relist
}

// relist is the interval of the search for new pods while no figure is due.
const relist = 5 * time.Second

// relistLazy is the same interval if figures are measured on demand only.
const relistLazy = time.Minute
