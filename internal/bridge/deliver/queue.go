package deliver

import (
	"cmp"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/internal/base/retry"
	"jettison/internal/bridge/verdict"
)

// Bounds of the queue.
const (
	maxEntries  = 4096 // records that are not finished
	maxFinished = 4096 // IDs of finished records
	// maxInFlight bounds the slow writes in flight: their responses may come together, and a pod is
	// as large as its author makes it.
	maxInFlight = 4
)

// listLag is how long a list of all pods may omit a pod, however far behind the API server's cache
// was.
const listLag = 5 * time.Minute

// statusQueue holds an entry for each record whose pod's status or events are not finished.
//
// It is not a client-go workqueue, which was tried: each change of the node's pods makes all
// entries ready, the order depends on rejections, delays on the kind of failure, and AddAfter
// cannot postpone an item for Retry-After. So the entries would keep these times and the order
// beside the workqueue.
type statusQueue struct {
	log      *slog.Logger
	entries  []*entry            // by record ID, oldest first
	finished []string            // record IDs, oldest first
	synced   bool                // the agent has sent all records that it had at the start
	inFlight map[*entry]struct{} // those with a slow write in flight
}

// add takes a record as the agent sends it. Beyond maxEntries the oldest entry is dropped.
func (q *statusQueue) add(r *api.Record) {
	at, known := slices.BinarySearchFunc(q.entries, r.ID, func(e *entry, id string) int {
		return strings.Compare(e.record.ID, id)
	})
	switch {
	case known:
		q.entries[at].update(r)
		return
	case slices.Contains(q.finished, r.ID):
		return
	}
	e := &entry{record: r, events: entryEvents{sent: map[string]bool{}}}
	// An earlier bridge may have written what a list does not show yet.
	e.pod.unsure = !q.synced && time.Since(r.Began.Time) < listLag
	q.entries = slices.Insert(q.entries, at, e)
	if len(q.entries) > maxEntries {
		q.log.Error("too many evictions wait for the API: the oldest is given up",
			"record", q.entries[0].record.ID)
		q.entries = slices.Delete(q.entries, 0, 1)
	}
}

// ready reports whether the entry's status may need a write now. It has one write in flight at
// most, but waits for none of another record of its pod: that one may be lost, and the pod's
// version has the server take one of both.
func (q *statusQueue) ready(e *entry, now time.Time) bool {
	return !q.writing(e) && !(e.settled && e.final()) && !e.write.waiting(now) &&
		!(e.write.slow && len(q.inFlight) >= maxInFlight)
}

// writing reports whether a slow write of the entry is in flight.
func (q *statusQueue) writing(e *entry) bool {
	_, ok := q.inFlight[e]
	return ok
}

// inOrder returns the entries in the order of their records. Those with rejected writes come last,
// the one first that was rejected first.
func (q *statusQueue) inOrder() []*entry {
	all := slices.Clone(q.entries)
	slices.SortStableFunc(all, func(a, b *entry) int {
		return cmp.Or(a.write.rejectedAt.Compare(b.write.rejectedAt),
			a.write.retryAt.Compare(b.write.retryAt))
	})
	return all
}

// firstReady returns the oldest ready entry whose pod can be read; nil: none.
func (q *statusQueue) firstReady(now time.Time) *entry {
	at := slices.IndexFunc(q.entries, func(e *entry) bool {
		return q.ready(e, now) &&
			e.record.Pod.Name != ""
	})
	if at < 0 {
		return nil
	}
	return q.entries[at]
}

// settled reports whether no pod's status needs another write.
func (q *statusQueue) settled() bool {
	return !slices.ContainsFunc(q.entries, func(e *entry) bool { return !e.settled })
}

// dropFinished drops the entries that finished reports true for.
func (q *statusQueue) dropFinished(finished func(*entry) bool) {
	q.entries = slices.DeleteFunc(q.entries, func(e *entry) bool {
		done := finished(e)
		if done {
			q.finished = append(q.finished, e.record.ID)
		}
		return done
	})
	q.finished = q.finished[max(0, len(q.finished)-maxFinished):]
}

// entry is one record, and how far its delivery has come.
type entry struct {
	record  *api.Record
	verdict verdict.Verdict // the last one
	settled bool            // the pod's status needs no more writes
	pod     podView
	write   statusWrite
	mends   mending
	events  entryEvents
}

// update replaces the record and resets the backoff, except for a Retry-After. An agent that is
// asked again repeats what it has sent.
func (e *entry) update(r *api.Record) {
	if reflect.DeepEqual(e.record, r) {
		return
	}
	e.record, e.settled, e.verdict, e.write.retryAt = r, false, verdict.Verdict{}, e.write.retryAfter
}

// final reports whether the agent will send nothing more of the record.
func (e *entry) final() bool { return verdict.Final(time.Now(), e.record) }

// podView is what responses have said of a pod. The watch may be behind them.
type podView struct {
	last   *v1.Pod // as the server returned it last
	gone   bool    // the server has no such pod
	unsure bool    // the last write may or may not be done, also one of an earlier bridge
}

// missing records that the server has no such pod.
func (p *podView) missing() { p.gone, p.unsure = true, false }

// statusWrite is the state of an entry's writes.
type statusWrite struct {
	backoff
	slow       bool      // the last one took longer than writeWait
	rejectedAt time.Time // by a server that serves reads; zero: not since the last success
	reported   string    // what was logged last of why it waits
}

// entryEvents is the state of an entry's events.
type entryEvents struct {
	backoff
	sent map[string]bool // by name
}

// Backoff doubles from minBackoff to one of these.
const (
	minBackoff, maxBackoff = 500 * time.Millisecond, 30 * time.Second
	// raceBackoff is for an unreachable server while a pod waits that its kubelet may fail first:
	// who comes second states the reason.
	raceBackoff = time.Second
	// maxRefusedBackoff is for refused requests: a role or a policy may be installed later.
	maxRefusedBackoff = 5 * time.Minute
)

// backoff delays the retry of what failed.
type backoff struct {
	retryAt    time.Time // zero: now
	retryAfter time.Time // as the server asked
	delay      time.Duration
}

// fail doubles the delay up to longest, and sets the time of the retry: after that delay, with
// jitter, and after the server's Retry-After.
func (b *backoff) fail(now time.Time, longest, retryAfter time.Duration) {
	b.delay = retry.Backoff(b.delay, minBackoff, longest)
	b.retryAfter = later(b.retryAfter, now.Add(retryAfter))
	b.retryAt = later(b.retryAfter, now.Add(retry.Jitter(b.delay)))
}

// waiting reports whether the time of the retry has not come.
func (b *backoff) waiting(now time.Time) bool { return now.Before(b.retryAt) }

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
