package disk

import (
	"cmp"
	"time"
)

// oldest chooses the pod to measure next; not due: all figures are young enough. A pod that was
// never measured comes first, one whose walk was cut off after all others that were not measured
// since the last such walk.
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
		if young && !t.Before(l.demanded) && !(cut && t.Before(l.whole)) {
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

// cutAt is when the last walk that was cut off ended; zero: there is none.
func (l *Loop) cutAt() (at time.Time) {
	for _, s := range l.pods {
		if end := s.time.Add(s.took); s.cut && end.After(at) {
			at = end
		}
	}
	return at
}

// hurriedEvery is the age at which figures are renewed while a disk is short, eagerEvery that of
// pods with limits of their own.
const (
	hurriedEvery = 5 * time.Second
	eagerEvery   = 10 * time.Second
)

// Demand has figures from before a time renewed at once.
func (l *Loop) Demand(since time.Time) {
	l.mu.Lock()
	if since.After(l.demanded) {
		l.demanded = since
	}
	l.mu.Unlock()
	l.wake()
}

// Finish has pods whose walks from before a time were cut off walked again, in the longest turn.
// Nobody waits for that.
func (l *Loop) Finish(since time.Time) {
	l.mu.Lock()
	later := since.After(l.whole)
	if later {
		l.whole = since
	}
	l.mu.Unlock()
	if later {
		l.wake()
	}
}

// Fresh reports whether no figure of a pod is from before a time. One whose walk was cut off counts
// as it is.
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

// rest is how long to wait while no figure is due.
func (l *Loop) rest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lazy && !l.hurry && len(l.eager) == 0 {
		return relistLazy
	}
	return relist
}

// relist is how soon the loop looks for new pods while no figure is due.
const relist = 5 * time.Second

// relistLazy is the same where figures are wanted on demand only.
const relistLazy = time.Minute
