package eviction

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"jettison/stats"
)

// save returns the saved form of the quiet disks. If a disk has too many pods, the pods with the
// lowest usage are left out.
func (e *diskExplainer) save() (out []SavedDisk) {
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

// resume restores the quiet disks and the doubts.
func (e *diskExplainer) resume(now time.Time, saved []SavedDisk, drop func(string, ...any)) {
	e.quiet, e.doubts = map[stats.Signal]quietDisk{}, map[stats.Signal]doubt{}
	for i := range saved[:min(len(saved), signalCount)] {
		s := &saved[i]
		info, known := signals[s.Signal]
		if !known || !info.kind.disk() || s.Quiet.IsZero() || s.Used > implausible ||
			max(len(s.Pods), len(s.Unmeasured)) > maxRemembered {
			drop("quiet disk: %.64q with %d used and %d pods is invalid", string(s.Signal), s.Used,
				len(s.Pods)+len(s.Unmeasured))
			continue
		}
		// whether the look was complete is not saved
		q := quietDisk{at: onClock(now, earlier(s.Quiet, now)), used: s.Used, nextLook: quietRetry}
		if len(s.Pods) > 0 {
			q.pods = make(map[string]uint64, len(s.Pods))
		}
		for uid, held := range s.Pods {
			if checkName("a UID", uid) == nil && held <= implausible {
				q.pods[uid] = held
			}
		}
		invalid := len(s.Pods) - len(q.pods)
		for _, uid := range s.Unmeasured {
			if checkName("a UID", uid) != nil {
				invalid++
				continue
			}
			if q.unmeasured == nil {
				q.unmeasured = map[string]bool{}
			}
			q.unmeasured[uid] = true
		}
		if invalid > 0 {
			drop("quiet disk: usage by %s of %d of %d pods is implausible", s.Signal, invalid, len(s.Pods)+
				len(s.Unmeasured))
		}
		if e.quiet[s.Signal] = q; !s.Doubt.IsZero() {
			e.doubts[s.Signal] = doubt{since: onClock(now, earlier(s.Doubt, now)),
				ended: onClock(now, earlier(s.Ended, now))}
		}
	}
}

// fileSystemNames contains the names of the file systems in the saved state.
var fileSystemNames = [containerFs + 1]string{"", "nodefs", "imagefs", "containerfs"}

// save returns the saved form of the delays.
func (b *suspectBackoffs) save() (out []SavedSuspicion) {
	for fs := nodeFs; fs <= containerFs; fs++ {
		for _, hard := range []bool{false, true} {
			if d := b.of(fs, hard); !d.last.IsZero() {
				out = append(out, SavedSuspicion{FileSystem: fileSystemNames[fs], Hard: hard,
					Last: d.last.Round(0), DelaySeconds: int64(d.delay / time.Second)})
			}
		}
	}
	return out
}

// resume restores the delays.
func (b *suspectBackoffs) resume(now time.Time, saved []SavedSuspicion, drop func(string, ...any)) {
	*b = suspectBackoffs{}
	for _, s := range saved[:min(len(saved), 2*len(b))] {
		fs := slices.Index(fileSystemNames[:], s.FileSystem)
		if fs <= int(noFs) {
			drop("delay of evictions: unknown file system %.64q", s.FileSystem)
			continue
		}
		*b.of(fileSystem(fs), s.Hard) = suspectBackoff{last: onClock(now, earlier(s.Last, now)),
			delay: min(time.Duration(min(max(s.DelaySeconds, 0), maxSavedGrace))*time.Second,
				suspectDelayMax)}
	}
}

// earlier returns the earlier of two times. It keeps saved times out of the future if the clock was
// set back.
func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}
