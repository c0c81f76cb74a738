package eviction

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// save is what is kept of them.
func (bs *breakers) save() (out []SavedBreaker) {
	for key, b := range bs.by {
		out = append(out, SavedBreaker{
			Signal: key.signal, Hard: key.hard, Futile: b.futile, Known: maps.Clone(b.known),
			Unread: b.unread,
			Vain:   maps.Clone(b.vain), Tries: b.tries, Until: b.until.Round(0), Stopped: b.stopped.save(),
		})
	}
	slices.SortFunc(out, func(x, y SavedBreaker) int {
		return cmp.Or(cmp.Compare(x.Signal, y.Signal), compareBool(x.Hard, y.Hard))
	})
	return out
}

// resume takes back what the breaker counted. An agent before this one counted by what was short,
// for hard and soft alike.
func (bs *breakers) resume(now time.Time, s *Saved, all []watched, drop func(string, ...any)) {
	for _, name := range slices.Sorted(maps.Keys(s.Futile)) {
		k := slices.Index(kindNames[:], name)
		if k < 0 || s.Futile[name] < 0 {
			drop("what the breaker counted: %d of %.64q", s.Futile[name], name)
			continue
		}
		for i := range all {
			if w := &all[i]; int(w.info.kind) == k && s.Futile[name] > 0 {
				bs.by[w.key()] = breaker{futile: min(s.Futile[name], breakerLimit)}
			}
		}
	}
	for i := range s.Breaker[:min(len(s.Breaker), 2*signalCount)] {
		bs.resumeOne(now, &s.Breaker[i], drop)
	}
}

// resumeOne takes back what was counted for one threshold.
func (bs *breakers) resumeOne(now time.Time, b *SavedBreaker, drop func(string, ...any)) {
	_, known := signals[b.Signal]
	if !known || b.Futile < 0 || b.Tries < 0 || max(len(b.Known), len(b.Vain)) > maxRemembered {
		drop("what the breaker counted: %d of %.64q, %d pods", b.Futile, string(b.Signal), len(b.Known))
		return
	}
	tries := min(b.Tries, maxTries)
	until := onClock(now, b.Until)
	if most := now.Add(tryAfter(tries)); until.After(most) {
		drop("the breaker waits until %s for %s, which is too far", b.Until.Format(time.RFC3339),
			b.Signal)
		until = most
	}
	if b.Futile > 0 {
		back := breaker{
			futile: min(b.Futile, breakerLimit), known: maps.Clone(b.Known), unread: b.Unread,
			vain: maps.Clone(b.Vain), tries: tries, until: until,
		}
		back.stopped.resume(b.Stopped, drop)
		bs.by[breakerKey{b.Signal, b.Hard}] = back
	}
}
