package garbage

import (
	"maps"
	"slices"
	"time"

	"jettison/reclaim"
)

// quiet tracks quiet pods, those without anything alive, and since when. A pod stays quiet from one
// look to the next, and over a restart, unless it has a new sandbox: a sandbox that is not ready
// never becomes ready again, so a pod that was alive in between has another one. The file omits
// pods that a client or a manifest names. The names do not survive a restart, and a pod that ended
// days ago would count as gone before its client names it again.
type quiet struct {
	since   reclaim.Quiet
	seen    map[string]quietPod // in the last look; before the first one, as read from the file
	waiting int                 // quiet pods that do not count as gone yet
	next    time.Time           // when the first of them counts as gone
}

// quietPod is a quiet pod in the file.
type quietPod struct {
	// for human readers: the clock of a node without a battery can jump by years
	Since time.Time `json:"since"`
	// SinceBoot is the same time on CLOCK_BOOTTIME, which cannot be set and includes suspend time. 0:
	// unknown.
	SinceBoot time.Duration `json:"sinceBootNs"`
	Sandboxes []string      `json:"sandboxes,omitempty"` // IDs, sorted
}

// bytes returns an upper bound of a pod's size in the file: JSON may encode each byte of a name as
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

// update updates the quiet pods from a look. uptime is the current CLOCK_BOOTTIME.
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
			continue // alive in between, and dead again
		}
		at, known := q.since[uid]
		if !known { // read from the file
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

// keep keeps the former values if they differ only because two clocks are read one after the other.
// Otherwise the text of the file would change, and each look would write and sync it.
func (p *quietPod) keep(before quietPod) {
	const same = time.Second
	if before.SinceBoot > 0 && (p.SinceBoot-before.SinceBoot).Abs() < same {
		p.SinceBoot = before.SinceBoot
	}
	if p.Since.Sub(before.Since).Abs() < same {
		p.Since = before.Since
	}
}

// confirm returns the named pods. A pod whose end is only claimed is active until it has been quiet
// for a period.
func (q *quiet) confirm(now time.Time, k *Known, after time.Duration) map[string]reclaim.Phase {
	if len(k.Claimed) == 0 {
		return k.Pods
	}
	out := maps.Clone(k.Pods)
	for uid := range k.Claimed {
		if since, ok := q.since[uid]; !ok || now.Sub(since) < after {
			out[uid] = reclaim.Active
		}
	}
	return out
}

// count counts the quiet, unnamed pods that do not count as gone yet.
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
