package eviction

import "time"

// freshLimit bounds the time that a victim for a disk waits for a new measurement of pods' disk
// usage. After that time the victim is chosen by the latest measurement, because a walk may take
// long.
const freshLimit = 20 * time.Second

// measuredSince returns the time since which pods' disk usage must have been measured, or zero.
//
// The result is the latest of three times: when a disk became short, when the last victim's files
// were removed, and when pods were found not to explain the shortage. While no disk is short, the
// time at which a look at quiet disks became due counts too: that look delays no eviction. The
// result is zero after freshLimit, because a walk may take long.
func (e *diskExplainer) measuredSince(now time.Time, all []watched, cleaned time.Time) time.Time {
	since := cleaned
	if e.remeasureSince.After(since) {
		since = e.remeasureSince
	}
	short := false
	for i := range all {
		if w := &all[i]; w.met && w.info.kind.disk() {
			if short = true; w.metSince.After(since) {
				since = w.metSince
			}
		}
	}
	if e.quietLookDue && !short && e.quietLookSince.After(since) {
		since = e.quietLookSince
	}
	if since.IsZero() || now.Sub(since) >= freshLimit {
		return time.Time{}
	}
	return since
}
