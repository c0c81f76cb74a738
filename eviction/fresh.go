package eviction

import "time"

// freshLimit is how long a victim for a disk waits for pods' disk usage to be measured anew: a walk
// may take its time, so that after it the victim is chosen by what there is.
const freshLimit = 20 * time.Second

// diskFresh is the latest of when a disk became short, when the last victim's files were removed,
// and when what pods hold was found not to explain the shortage; while none is short, of when a
// look at disks that rest became due, too, which holds up no victim. Zero when that is so long ago
// that a victim is chosen by what there is, for a walk may take its time.
func (e *explaining) diskFresh(now time.Time, all []watched, cleaned time.Time) time.Time {
	since := cleaned
	if e.fuller.After(since) {
		since = e.fuller
	}
	short := false
	for i := range all {
		if w := &all[i]; w.met && w.info.kind.disk() {
			if short = true; w.since.After(since) {
				since = w.since
			}
		}
	}
	if e.pending && !short && e.asked.After(since) {
		since = e.asked
	}
	if since.IsZero() || now.Sub(since) >= freshLimit {
		return time.Time{}
	}
	return since
}
