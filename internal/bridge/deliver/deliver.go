// Package deliver writes evictions from an agent's records to the Kubernetes API: the status of
// each victim's pod and its events, in order, none lost and none twice. It stores nothing: the
// agent keeps the records, and the pod's status at the API says how far each has come.
//
//	deliver.go   Deliverer: the loop
//	follow.go    follows the agent's records
//	queue.go     the records that are not finished, in their order
//	breaker.go   the circuit breaker for the API server, and backoff
//	status.go    writes pods' statuses
//	response.go  processes the responses to these, also those of slow writes
//	mend.go      counts statuses that others change back
//	events.go    sends events
package deliver

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// API is the part of the Kubernetes API that a Deliverer uses.
type API interface {
	Pod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	PatchPodStatus(ctx context.Context, namespace, name string, body []byte) (*v1.Pod, error)
	CreateEvent(ctx context.Context, e *v1.Event) error
}

// Pods is the copy of this node's pods.
type Pods interface {
	Pod(namespace, name string) *v1.Pod
	Synced() (at time.Time, ok bool)
	Again()
}

// Options of New.
type Options struct {
	Node    string
	Records Records
	Pods    Pods
	API     API
	// Status reports whether pods' statuses are written; else there are events alone. It is called
	// once, when the copy of the pods is synced or something is to be written, and again after an
	// error.
	Status func(context.Context) (bool, error)
	Log    *slog.Logger
}

// Deliverer is the loop.
type Deliverer struct {
	o          Options
	changed    chan struct{} // one slot: the copy of the pods has changed
	records    chan *api.RecordsLine
	responses  chan func(ctx context.Context) // processes late responses
	background sync.WaitGroup                 // the follower, and requests in flight

	queue       statusQueue
	breaker     breaker
	events      eventSender
	gaps        gaps
	writeStatus bool // pods' statuses are written
	modeKnown   bool // writeStatus is known
}

// New makes a Deliverer.
func New(o Options) *Deliverer {
	return &Deliverer{
		o: o, changed: make(chan struct{}, 1),
		records: make(chan *api.RecordsLine, 64), responses: make(chan func(context.Context)),
		queue:   statusQueue{log: o.Log, inFlight: map[*entry]struct{}{}},
		breaker: breaker{log: o.Log},
		events:  eventSender{pace: pacer{left: eventBurst}},
	}
}

// Changed tells the Deliverer that the copy of the pods has changed. It does not block, and may be
// called concurrently.
func (d *Deliverer) Changed() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// Run delivers until ctx ends.
func (d *Deliverer) Run(ctx context.Context) {
	defer d.background.Wait()
	f := follower{
		records: d.o.Records, out: d.records, resync: d.o.Pods.Again, log: d.o.Log,
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
			d.take(l)
		case process := <-d.responses:
			process(ctx)
		case <-d.changed:
			d.breaker.probeEarly()
		case <-timer.C:
		}
		for range len(d.records) { // those that came meanwhile: a pass may take seconds
			d.take(<-d.records)
		}
		wait := d.waitForAPI()
		if wait <= 0 {
			wait = d.pass(ctx)
		}
		timer.Reset(wait)
	}
}

// inLoop has the loop call a function. Goroutines beside the loop use it to change the Deliverer's
// state.
func (d *Deliverer) inLoop(ctx context.Context, process func(context.Context)) {
	select {
	case <-ctx.Done():
	case d.responses <- process:
	}
}

// take takes a line that the agent sent.
func (d *Deliverer) take(l *api.RecordsLine) {
	if l.Gap != nil {
		d.takeGap(l.Gap)
	}
	d.queue.synced = d.queue.synced || l.Synced
	if l.Record != nil {
		d.queue.add(l.Record)
	}
}

// idleWait is how long the loop waits while nothing is due.
const idleWait = time.Minute

// nextPass returns how long the loop may wait after a pass that began at some time.
func (d *Deliverer) nextPass(began time.Time) time.Duration {
	wait, now := idleWait, time.Now()
	sooner := func(times ...time.Time) {
		for _, at := range times {
			if at.After(began) { // what was due before has been tried
				wait = min(wait, max(0, at.Sub(now)))
			}
		}
	}
	sooner(d.breaker.retryAt, d.gaps.retryAt, d.events.retryAt, d.events.pace.next)
	for _, e := range d.queue.entries {
		sooner(e.write.retryAt, e.events.retryAt, e.verdict.At, e.mends.heldUntil())
	}
	return wait
}
