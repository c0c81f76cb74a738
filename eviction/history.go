package eviction

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// history remembers pods that were set aside and pods that were evicted.
type history struct {
	aside   map[string]setAside // by pod UID
	evicted map[string]evicted  // by pod UID
}

// setAside is the state of a pod that survived its kill.
type setAside struct {
	until  time.Time
	period time.Duration // doubles with the next failed kill
}

// evicted is the state of a pod that died.
type evicted struct {
	times int
	last  time.Time
}

// fillKeys sets the keys of a candidate that depend on earlier evictions.
func (h *history) fillKeys(k *Keys, now time.Time, uid string) {
	k.SetAside = now.Before(h.aside[uid].until)
	k.TimesEvicted = h.evicted[uid].times
}

// setAside returns the pods that are ranked last, by UID, with the end of that time.
func (h *history) setAside(now time.Time) map[string]time.Time {
	out := map[string]time.Time{}
	for uid, a := range h.aside {
		if now.Before(a.until) {
			out[uid] = a.until
		}
	}
	return out
}

// rankLast sets a pod aside: a pod that survives its kill is ranked last for a while.
func (h *history) rankLast(now time.Time, uid string) {
	h.expire(now)
	a := h.aside[uid]
	a.period = min(max(a.period*2, setAsideFirst), setAsideMax)
	a.until = now.Add(a.period)
	h.aside[uid] = a
}

// noteDeath stores that a pod has died.
func (h *history) noteDeath(now time.Time, uid string) {
	h.expire(now)
	delete(h.aside, uid)
	h.evicted[uid] = evicted{times: h.evicted[uid].times + 1, last: now}
}

// expire forgets pods that were set aside or evicted long ago.
func (h *history) expire(now time.Time) {
	maps.DeleteFunc(h.aside,
		func(_ string, a setAside) bool { return now.Sub(a.until) > 2*setAsideMax })
	maps.DeleteFunc(h.evicted,
		func(_ string, e evicted) bool { return now.Sub(e.last) > rememberEvicted })
}

// save returns the saved form. If there are too many entries, the latest are kept.
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

// resume restores the history.
func (h *history) resume(now time.Time, s *Saved, drop func(string, ...any)) {
	h.resumeAside(now, s.Aside, drop)
	h.resumeEvicted(now, s.Evicted, drop)
}

func (h *history) resumeAside(now time.Time, saved []SavedAside, drop func(string, ...any)) {
	for i, a := range saved {
		if len(h.aside) == maxRemembered {
			drop("%d pods set aside beyond the limit", len(saved)-i)
			return
		}
		if err := checkName("a UID", a.UID); err != nil || a.Times < 1 {
			drop("pod set aside: %w", cmp.Or(err, fmt.Errorf("implausible count %d", a.Times)))
			continue
		}
		restored := setAside{until: onClock(now, a.Until), period: setAsideFirst}
		for range min(a.Times, maxSetAsides) - 1 {
			restored.period = min(2*restored.period, setAsideMax)
		}
		if restored.until.After(now.Add(restored.period)) {
			drop("pod %s is set aside until %s, which is too far ahead: shortened to %v from now", a.UID,
				a.Until.Format(time.RFC3339), restored.period)
			restored.until = now.Add(restored.period)
		}
		h.aside[a.UID] = restored
	}
}

func (h *history) resumeEvicted(now time.Time, saved []SavedEvicted, drop func(string, ...any)) {
	for i, e := range saved {
		if len(h.evicted) == maxRemembered {
			drop("%d evicted pods beyond the limit", len(saved)-i)
			return
		}
		if err := checkName("a UID", e.UID); err != nil || e.Times < 1 {
			drop("evicted pod: %w", cmp.Or(err, fmt.Errorf("implausible count %d", e.Times)))
			continue
		}
		if e.Last.After(now) {
			e.Last = now
		}
		h.evicted[e.UID] = evicted{times: min(e.Times, maxTimes), last: onClock(now, e.Last)}
	}
}

// times returns how often in a row a pod was set aside, up to maxSetAsides.
func (a setAside) times() int {
	n := 1
	for d := setAsideFirst; d < a.period && n < maxSetAsides; d = min(2*d, setAsideMax) {
		n++
	}
	return n
}
