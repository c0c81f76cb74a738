package eviction

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// history remembers what became of pods that were killed.
type history struct {
	aside   map[string]setAside // by pod UID
	evicted map[string]evicted  // by pod UID
}

// setAside is what is remembered of a pod that was killed and did not die.
type setAside struct {
	until time.Time
	next  time.Duration // how long the next time
}

// evicted remembers a pod that died.
type evicted struct {
	times int
	last  time.Time
}

// fillKeys fills in what is remembered of a candidate.
func (h *history) fillKeys(k *Keys, now time.Time, uid string) {
	k.SetAside = now.Before(h.aside[uid].until)
	k.Returned = h.evicted[uid].times
}

// setAside returns the pods that are ranked last, by UID, and until when.
func (h *history) setAside(now time.Time) map[string]time.Time {
	out := map[string]time.Time{}
	for uid, a := range h.aside {
		if now.Before(a.until) {
			out[uid] = a.until
		}
	}
	return out
}

// putAside has a pod that cannot be killed ranked last for a while.
func (h *history) putAside(now time.Time, uid string) {
	h.clear(now)
	a := h.aside[uid]
	a.next = min(max(a.next*2, setAsideFirst), setAsideMax)
	a.until = now.Add(a.next)
	h.aside[uid] = a
}

// died remembers that a pod has died.
func (h *history) died(now time.Time, uid string) {
	h.clear(now)
	delete(h.aside, uid)
	h.evicted[uid] = evicted{times: h.evicted[uid].times + 1, last: now}
}

// clear forgets pods that were set aside, or evicted, long ago.
func (h *history) clear(now time.Time) {
	maps.DeleteFunc(h.aside, func(_ string,
		a setAside) bool {
		return now.Sub(a.until) > 2*setAsideMax
	})
	maps.DeleteFunc(h.evicted,
		func(_ string, e evicted) bool { return now.Sub(e.last) > rememberEvicted })
}

// save is what is kept of it: those that matter most, where there are too many.
func (h *history) save() (aside []SavedAside, died []SavedEvicted) {
	for uid, a := range h.aside {
		aside = append(aside, SavedAside{UID: uid, Until: a.until.Round(0), Times: a.times()})
	}
	slices.SortFunc(aside, func(x, y SavedAside) int {
		return cmp.Or(y.Until.Compare(x.Until), cmp.Compare(x.UID, y.UID))
	})
	aside = aside[:min(len(aside), maxRemembered)]
	for uid, e := range h.evicted {
		died = append(died, SavedEvicted{UID: uid, Times: e.times, Last: e.last.Round(0)})
	}
	slices.SortFunc(died, func(x, y SavedEvicted) int {
		return cmp.Or(y.Last.Compare(x.Last), cmp.Compare(x.UID, y.UID))
	})
	died = died[:min(len(died), maxRemembered)]
	return aside, died
}

// resume takes back what was saved.
func (h *history) resume(now time.Time, s *Saved, drop func(string, ...any)) {
	h.resumeAside(now, s.Aside, drop)
	h.resumeEvicted(now, s.Evicted, drop)
}

func (h *history) resumeAside(now time.Time, saved []SavedAside, drop func(string, ...any)) {
	for i, a := range saved {
		if len(h.aside) == maxRemembered {
			drop("%d pods set aside too many", len(saved)-i)
			return
		}
		if err := checkWord("a UID", a.UID); err != nil || a.Times < 1 {
			drop("a pod set aside: %w", cmp.Or(err, fmt.Errorf("%d times", a.Times)))
			continue
		}
		back := setAside{until: onClock(now, a.Until), next: setAsideFirst}
		for range min(a.Times, maxSetAsides) - 1 {
			back.next = min(2*back.next, setAsideMax)
		}
		if back.until.After(now.Add(back.next)) {
			drop("pod %s is set aside until %s, which is too far: for %v from now", a.UID,
				a.Until.Format(time.RFC3339), back.next)
			back.until = now.Add(back.next)
		}
		h.aside[a.UID] = back
	}
}

func (h *history) resumeEvicted(now time.Time, saved []SavedEvicted, drop func(string, ...any)) {
	for i, e := range saved {
		if len(h.evicted) == maxRemembered {
			drop("%d evicted pods too many", len(saved)-i)
			return
		}
		if err := checkWord("a UID", e.UID); err != nil || e.Times < 1 {
			drop("an evicted pod: %w", cmp.Or(err, fmt.Errorf("%d times", e.Times)))
			continue
		}
		if e.Last.After(now) {
			e.Last = now
		}
		h.evicted[e.UID] = evicted{times: min(e.Times, maxTimes), last: onClock(now, e.Last)}
	}
}

// times is how often in a row a pod was set aside, as far as it counts.
func (a setAside) times() int {
	n := 1
	for d := setAsideFirst; d < a.next && n < maxSetAsides; d = min(2*d, setAsideMax) {
		n++
	}
	return n
}
