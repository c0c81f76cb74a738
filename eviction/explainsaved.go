package eviction

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"jettison/stats"
)

// save is what is kept of disks. Of too many pods on one those are left out that hold the least.
func (e *explaining) save() (out []SavedDisk) {
	for signal := range signals {
		q, known := e.quiet[signal]
		d, doubted := e.doubts[signal]
		if !known || !signals[signal].kind.disk() {
			continue
		}
		s := SavedDisk{Signal: signal, Quiet: q.at.Round(0), Used: q.used, Pods: maps.Clone(q.pods)}
		s.Unmeasured = slices.Sorted(maps.Keys(q.unmeasured))
		s.Unmeasured = s.Unmeasured[:min(len(s.Unmeasured), maxRemembered)]
		if len(s.Pods) > maxRemembered {
			uids := slices.SortedFunc(maps.Keys(q.pods), func(x, y string) int {
				return cmp.Or(cmp.Compare(q.pods[y], q.pods[x]), cmp.Compare(x, y))
			})
			for _, uid := range uids[maxRemembered:] {
				delete(s.Pods, uid)
			}
		}
		if doubted {
			s.Doubt, s.Ended = d.since.Round(0), d.ended.Round(0)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(x, y SavedDisk) int { return cmp.Compare(x.Signal, y.Signal) })
	e.unsaved = false
	return out
}

// resume takes back what shortages of disks are held against.
func (e *explaining) resume(now time.Time, saved []SavedDisk, drop func(string, ...any)) {
	e.quiet, e.doubts = map[stats.Signal]quiet{}, map[stats.Signal]doubt{}
	for i := range saved[:min(len(saved), signalCount)] {
		s := &saved[i]
		info, known := signals[s.Signal]
		if !known || !info.kind.disk() || s.Quiet.IsZero() || s.Used > implausible ||
			max(len(s.Pods), len(s.Unmeasured)) > maxRemembered {
			drop("a disk that was quiet: %.64q, %d used, %d pods", string(s.Signal), s.Used, len(s.Pods)+
				len(s.Unmeasured))
			continue
		}
		// what was missing is not kept
		q := quiet{at: onClock(now, earlier(s.Quiet, now)), used: s.Used, again: quietAgain}
		if len(s.Pods) > 0 {
			q.pods = make(map[string]uint64, len(s.Pods))
		}
		for uid, held := range s.Pods {
			if checkWord("a UID", uid) == nil && held <= implausible {
				q.pods[uid] = held
			}
		}
		wrong := len(s.Pods) - len(q.pods)
		for _, uid := range s.Unmeasured {
			if checkWord("a UID", uid) != nil {
				wrong++
				continue
			}
			if q.unmeasured == nil {
				q.unmeasured = map[string]bool{}
			}
			q.unmeasured[uid] = true
		}
		if wrong > 0 {
			drop("what pods held of a disk by %s: %d of %d cannot be true", s.Signal, wrong, len(s.Pods)+
				len(s.Unmeasured))
		}
		if e.quiet[s.Signal] = q; !s.Doubt.IsZero() {
			e.doubts[s.Signal] = doubt{since: onClock(now, earlier(s.Doubt, now)),
				ended: onClock(now, earlier(s.Ended, now))}
		}
	}
}

// earlier is the earlier of two times: a clock that was set back must not make one wait.
func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}
