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

// Limits of the queue.
const (
	maxEntries  = 4096 // unfinished records
	maxFinished = 4096 // IDs of finished records
	// maxInFlight bounds the slow writes in flight. Their responses may arrive together, and a
	// pod's author decides how large the pod is.
	maxInFlight = 4
)

// listLag is the longest time that a list may omit a new pod because the API server's cache is
// behind.
const listLag = 5 * time.Minute

// statusQueue holds an entry for each record whose pod status or events are not finished.
//
// A client-go workqueue does not fit: each change of the node's pods makes all entries ready, the
// order depends on rejections, delays depend on the kind of failure, and AddAfter cannot postpone
// an item for Retry-After. The entries would keep these times and the order in addition to the
// workqueue.
type statusQueue struct {
	log      *slog.Logger
	entries  []*entry            // by record ID, oldest first
	finished []string            // record IDs, oldest first
	synced   bool                // the agent has sent all records that it had at the start
	inFlight map[*entry]struct{} // entries with a slow write in flight
}

// add adds or updates a record. Beyond maxEntries it drops the oldest entry.
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
	// An earlier bridge may have written a status that a list does not show yet.
	e.pod.uncertain = !q.synced && time.Since(r.Began.Time) < listLag
	q.entries = slices.Insert(q.entries, at, e)
	if len(q.entries) > maxEntries {
		//log: Too many evictions wait for the API server. The status and events of this record are
		//  not written.
		//do: Make the API server reachable for the bridge. The record stays available from the
		//  agent.
		q.log.Error("eviction queue full, oldest entry dropped",
			"record", q.entries[0].record.ID)
		q.entries = slices.Delete(q.entries, 0, 1)
	}
}

// ready reports whether the entry's status may need a write now. An entry has at most one write in
// flight. It does not wait for a write of another record of the same pod: that write may be lost,
// and the pod's resource version makes the server accept only one of the two.
func (q *statusQueue) ready(e *entry, now time.Time) bool {
	return !q.writing(e) && !(e.settled && e.final()) && !e.write.waiting(now) &&
		!(e.write.slow && len(q.inFlight) >= maxInFlight)
}

// writing reports whether a slow write of the entry is in flight.
func (q *statusQueue) writing(e *entry) bool {
	_, ok := q.inFlight[e]
	return ok
}

// sorted returns the entries in record order. Entries with rejected writes come last, the earliest
// rejection first.
func (q *statusQueue) sorted() []*entry {
	all := slices.Clone(q.entries)
	slices.SortStableFunc(all, func(a, b *entry) int {
		return cmp.Or(a.write.rejectedAt.Compare(b.write.rejectedAt),
			a.write.retryAt.Compare(b.write.retryAt))
	})
	return all
}

// anyReady reports whether an entry is ready.
func (q *statusQueue) anyReady(now time.Time) bool {
	return slices.ContainsFunc(q.entries, func(e *entry) bool { return q.ready(e, now) })
}

// settled reports whether no pod status needs another write.
func (q *statusQueue) settled() bool {
	return !slices.ContainsFunc(q.entries, func(e *entry) bool { return !e.settled })
}

// dropFinished drops the entries for which finished returns true.
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

// entry is one record and the state of its delivery.
type entry struct {
	record   *api.Record
	verdict  verdict.Verdict // the last one
	settled  bool            // the pod status needs no more writes
	pod      podView
	write    statusWrite
	restores restoreState
	events   entryEvents
}

// update replaces the record and resets the backoff, except for a Retry-After. It ignores an
// identical record: an agent repeats its records when the stream is reopened.
func (e *entry) update(r *api.Record) {
	if reflect.DeepEqual(e.record, r) {
		return
	}
	e.record, e.settled, e.verdict, e.write.retryAt = r, false, verdict.Verdict{}, e.write.retryAfter
}

// final reports whether the agent will not send the record again.
func (e *entry) final() bool { return verdict.Final(time.Now(), e.record) }

// podView is the pod as responses have shown it. The watch may be behind them.
type podView struct {
	last      *v1.Pod // as the server last returned it
	gone      bool    // the server has no such pod
	uncertain bool    // the last write, perhaps by an earlier bridge, has an unknown result
}

// setMissing records that the server has no such pod.
func (p *podView) setMissing() { p.gone, p.uncertain = true, false }

// statusWrite is the state of an entry's writes.
type statusWrite struct {
	backoff
	slow       bool      // the last write took longer than writeWait
	rejectedAt time.Time // last rejection by a server that serves reads; zero: none
	reported   string    // cause and request of the last logged failure
}

// entryEvents is the state of sending an entry's events.
type entryEvents struct {
	sent          map[string]bool // by name
	ofPod, ofNode backoff         // they are in different namespaces, whose webhooks differ
}

// wait returns the backoff for an event.
func (e *entryEvents) wait(event *v1.Event) *backoff {
	if event.InvolvedObject.Kind == "Node" {
		return &e.ofNode
	}
	return &e.ofPod
}

// Backoff doubles from minBackoff up to one of these.
const (
	minBackoff, maxBackoff = 500 * time.Millisecond, 30 * time.Second
	// raceBackoff applies while the server is unreachable and the kubelet of a pending pod may set
	// it to Failed first. A pod that the kubelet fails first does not get the reason Evicted.
	raceBackoff = time.Second
	// maxDeniedBackoff applies to denied requests, because a role or a policy may be installed
	// later. It also applies to slow writes and to rejected events.
	maxDeniedBackoff = 5 * time.Minute
)

// backoff delays retries.
type backoff struct {
	retryAt    time.Time // zero: now
	retryAfter time.Time // as requested by the server
	delay      time.Duration
}

// fail doubles the delay up to maxDelay and sets the time of the retry: after that delay with
// jitter, and not before the server's Retry-After.
func (b *backoff) fail(now time.Time, maxDelay, retryAfter time.Duration) {
	b.delay = retry.Backoff(b.delay, minBackoff, maxDelay)
	b.retryAfter = latest(b.retryAfter, now.Add(retryAfter))
	b.retryAt = latest(b.retryAfter, now.Add(retry.Jitter(b.delay)))
}

// waiting reports whether the time of the retry is still ahead.
func (b *backoff) waiting(now time.Time) bool { return now.Before(b.retryAt) }

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
