package garbage

import (
	"slices"
	"time"

	"jettison/reclaim"
)

// quiet is since when pods have nothing alive in them. It goes on from one look to the next, and
// over a restart, for those of which nothing new is there: a sandbox that is not ready never
// becomes ready again, so that a pod that lived in between has another one. Of pods that a client
// or a manifest names nothing is kept. The names do not outlive a restart, and a pod that ended
// days ago would be gone before its client is heard again.
type quiet struct {
	since   reclaim.Quiet
	seen    map[string]quietPod // at the last look; before the first one, as read from the file
	waiting int                 // pods that are on their way to be gone
	next    time.Time           // when the first of them will be
}

// quietPod is one of them in the file.
type quietPod struct {
	// for people: the clock of a node without a battery goes by years when it is set
	Since time.Time `json:"since"`
	// SinceBoot is the same by CLOCK_BOOTTIME, which nothing sets and which counts what a node sleeps.
	// 0: not known.
	SinceBoot time.Duration `json:"sinceBootNs"`
	Sandboxes []string      `json:"sandboxes,omitempty"` // IDs, sorted
}

// bytes is more than a pod takes in the file: names are of a runtime, and each byte of one may take
// six.
func (p *quietPod) bytes(uid string) int {
	const rest = 256
	n := rest + 6*len(uid)
	for _, id := range p.Sandboxes {
		n += 8 + 6*len(id)
	}
	return n
}

func newQuiet() quiet { return quiet{since: reclaim.Quiet{}, seen: map[string]quietPod{}} }

// update brings it up to date with a look. uptime is now by CLOCK_BOOTTIME.
func (q *quiet) update(now time.Time, uptime time.Duration, l *reclaim.Look) {
	sandboxes := map[string][]string{}
	for i := range l.Sandboxes {
		s := &l.Sandboxes[i]
		sandboxes[s.PodUID] = append(sandboxes[s.PodUID], s.ID)
	}
	since := reclaim.Quiet{}
	for uid, p := range q.seen {
		if slices.ContainsFunc(sandboxes[uid],
			func(id string) bool { return !slices.Contains(p.Sandboxes, id) }) {
			continue // it lived in between, and died again
		}
		at, looked := q.since[uid]
		if !looked { // another process saw it
			at = now.Add(min(0, p.SinceBoot-uptime))
		}
		since[uid] = at
	}
	q.since = since.Update(now, l)
	before := q.seen
	q.seen = make(map[string]quietPod, len(q.since))
	for uid, at := range q.since {
		ids := sandboxes[uid]
		slices.Sort(ids)
		p := quietPod{Since: at.UTC(), SinceBoot: max(uptime-now.Sub(at), 1), Sandboxes: ids}
		p.keep(before[uid])
		q.seen[uid] = p
	}
}

// keep keeps the text of before where only the reading of two clocks, one after the other, makes a
// difference: the file is written when its text changes, and synced, at each look else.
func (p *quietPod) keep(before quietPod) {
	const same = time.Second
	if before.SinceBoot > 0 && (p.SinceBoot-before.SinceBoot).Abs() < same {
		p.SinceBoot = before.SinceBoot
	}
	if p.Since.Sub(before.Since).Abs() < same {
		p.Since = before.Since
	}
}

// count finds the pods that will be gone, but are not yet.
func (q *quiet) count(now time.Time, named map[string]reclaim.Phase, after time.Duration) {
	q.waiting, q.next = 0, time.Time{}
	for uid, since := range q.since {
		if _, ok := named[uid]; ok || now.Sub(since) >= after {
			continue
		}
		if q.waiting++; q.next.IsZero() || since.Add(after).Before(q.next) {
			q.next = since.Add(after)
		}
	}
}
