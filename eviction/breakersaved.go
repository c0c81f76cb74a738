package eviction

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// save returns the saved form of all breakers.
func (bs *breakers) save() (out []SavedBreaker) {
	for key, b := range bs.byThreshold {
		out = append(out, SavedBreaker{
			Signal: key.signal, Hard: key.hard, Futile: b.futile, Known: maps.Clone(b.usageAtOpen),
			Unread:        b.hasBounds,
			FutileReturns: maps.Clone(b.futileReturns), Trials: b.trials,
			Until: b.nextTrial.Round(0), Stopped: b.atOpen.save(),
		})
	}
	slices.SortFunc(out, func(x, y SavedBreaker) int {
		return cmp.Or(cmp.Compare(x.Signal, y.Signal), compareBool(x.Hard, y.Hard))
	})
	return out
}

// resume restores the breakers. An older agent counted by resource, for hard and soft thresholds
// together.
func (bs *breakers) resume(now time.Time, s *Saved, all []watched, drop func(string, ...any)) {
	for _, name := range slices.Sorted(maps.Keys(s.Futile)) {
		k := slices.Index(kindNames[:], name)
		if k < 0 || s.Futile[name] < 0 {
			drop("circuit breaker: count %d for %.64q is invalid", s.Futile[name], name)
			continue
		}
		for i := range all {
			if w := &all[i]; int(w.info.kind) == k && s.Futile[name] > 0 {
				bs.byThreshold[w.key()] = breaker{futile: min(s.Futile[name], breakerLimit)}
			}
		}
	}
	for i := range s.Breaker[:min(len(s.Breaker), 2*signalCount)] {
		bs.resumeOne(now, &s.Breaker[i], drop)
	}
}

// resumeOne restores the breaker of one threshold.
func (bs *breakers) resumeOne(now time.Time, b *SavedBreaker, drop func(string, ...any)) {
	_, known := signals[b.Signal]
	if !known || b.Futile < 0 || b.Trials < 0 ||
		max(len(b.Known), len(b.FutileReturns)) > maxRemembered {
		drop("circuit breaker: count %d for %.64q with %d pods is invalid", b.Futile, string(b.Signal),
			len(b.Known))
		return
	}
	tries := min(b.Trials, maxTrials)
	until := onClock(now, b.Until)
	if latest := now.Add(trialDelay(tries)); until.After(latest) {
		drop("circuit breaker: next trial at %s for %s is too far ahead", b.Until.Format(time.RFC3339),
			b.Signal)
		until = latest
	}
	if b.Futile > 0 {
		restored := breaker{
			futile: min(b.Futile, breakerLimit), usageAtOpen: maps.Clone(b.Known), hasBounds: b.Unread,
			futileReturns: maps.Clone(b.FutileReturns), trials: tries, nextTrial: until,
		}
		restored.atOpen.resume(b.Stopped, drop)
		bs.byThreshold[breakerKey{b.Signal, b.Hard}] = restored
	}
}
