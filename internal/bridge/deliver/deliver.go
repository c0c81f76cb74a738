// Package deliver writes the evictions of an agent's records to the Kubernetes API: the status of
// each victim and its events, in order, each exactly once. It stores nothing: the agent keeps the
// records, and the pod's status in the API shows the progress of each.
//
//	deliver.go   Deliverer: the loop
//	follow.go    follows the agent's records
//	queue.go     the unfinished records in their order, and backoff
//	breaker.go   the circuit breaker for the API server
//	status.go    writes pod statuses
//	response.go  processes the responses, including those of slow writes
//	restore.go   counts statuses that other clients revert
//	events.go    sends events
package deliver

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// API is the subset of the Kubernetes API that a Deliverer uses.
type API interface {
	Pod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	PatchPodStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error)
	CreateEvent(ctx context.Context, e *v1.Event) error
	Node(ctx context.Context, name string) (*v1.Node, error)
}

// Pods is the local copy of this node's pods.
type Pods interface {
	Pod(namespace, name string) *v1.Pod
	Synced() (at time.Time, ok bool)
	Resync()
}

// Options configures New.
type Options struct {
	Node    string
	Records Records
	Pods    Pods
	API     API
	// WriteStatus reports whether pod statuses are written; otherwise only events are sent. It is
	// called once, when the copy of the pods is synced or a record is pending, and again after an
	// error.
	WriteStatus func(context.Context) (bool, error)
	Log         *slog.Logger
}

// Deliverer is the loop that delivers the agent's records.
type Deliverer struct {
	o          Options
	changed    chan struct{} // one slot: the copy of the pods has changed
	records    chan *api.RecordsLine
	responses  chan func(ctx context.Context) // functions that process late responses
	background sync.WaitGroup                 // the follower, and requests in flight

	queue       statusQueue
	breaker     breaker
	events      eventSender
	gaps        gaps
	writeStatus bool // pod statuses are written
	modeKnown   bool // writeStatus is set
	pending     atomic.Int64
}

// New returns a Deliverer that is not running.
func New(o Options) *Deliverer {
	return &Deliverer{
		o: o, changed: make(chan struct{}, 1),
		records: make(chan *api.RecordsLine, 64), responses: make(chan func(context.Context)),
		queue:   statusQueue{log: o.Log, inFlight: map[*entry]struct{}{}},
		breaker: breaker{log: o.Log},
		events:  eventSender{pacer: pacer{tokens: eventBurst}, rejectedAt: map[string]time.Time{}},
	}
}

// Changed notifies the Deliverer that the copy of the pods has changed. It does not block and is
// safe for concurrent use.
func (d *Deliverer) Changed() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// Pending returns the number of evictions whose status or events may still need a write. It is safe
// for concurrent use.
func (d *Deliverer) Pending() int64 { return d.pending.Load() }

// Run delivers until ctx ends.
func (d *Deliverer) Run(ctx context.Context) {
	defer d.background.Wait()
	f := follower{
		records: d.o.Records, out: d.records, resync: d.o.Pods.Resync, log: d.o.Log,
		open: map[string]bool{},
	}
	d.background.Go(func() { f.run(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case l := <-d.records:
			d.handleLine(l)
		case process := <-d.responses:
			process(ctx)
		case <-d.changed:
			d.breaker.probeEarly()
		case <-timer.C:
		}
		for range len(d.records) { // lines received during the last pass, which may take seconds
			d.handleLine(<-d.records)
		}
		wait := d.waitForAPI()
		if wait <= 0 {
			wait = d.pass(ctx)
		}
		d.pending.Store(int64(len(d.queue.entries)))
		timer.Reset(wait)
	}
}

// runInLoop makes the loop call process. Other goroutines use it to change the Deliverer's state.
func (d *Deliverer) runInLoop(ctx context.Context, process func(context.Context)) {
	select {
	case <-ctx.Done():
	case d.responses <- process:
	}
}

// handleLine processes one line of the agent's record stream.
func (d *Deliverer) handleLine(l *api.RecordsLine) {
	if l.Gap != nil {
		d.addGap(l.Gap)
	}
	d.queue.synced = d.queue.synced || l.Synced
	if l.Record != nil {
		d.queue.add(l.Record)
	}
}

// idleWait is the time between passes while nothing is due.
const idleWait = time.Minute

// nextPass returns how long the loop may wait after a pass that started at began.
func (d *Deliverer) nextPass(began time.Time) time.Duration {
	wait, now := idleWait, time.Now()
	limitWait := func(times ...time.Time) {
		for _, at := range times {
			if at.After(began) { // earlier ones were tried in this pass
				wait = min(wait, max(0, at.Sub(now)))
			}
		}
	}
	limitWait(d.breaker.retryAt, d.gaps.retryAt, d.events.retryAt, d.events.pacer.next)
	for _, e := range d.queue.entries {
		limitWait(e.write.retryAt, e.events.ofPod.retryAt, e.events.ofNode.retryAt, e.verdict.RecheckAt,
			e.restores.stableAt())
	}
	return wait
}
