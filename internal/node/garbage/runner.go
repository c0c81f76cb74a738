package garbage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"jettison/eviction"
	"jettison/internal/base/retry"
	"jettison/internal/node/config"
	"jettison/reclaim"
)

// Runner runs passes in a goroutine: periodic ones, and those that Relieve requests.
type Runner struct {
	c        *Collector
	schedule Schedule
	report   func(Result)
	cancel   context.CancelFunc
	done     chan struct{}
	reliefs  chan []eviction.ReclaimRequest // one slot: a new request replaces a pending one
	policy   chan Policy                    // one slot, as reliefs

	// time of the last pass for containers that only planned; zero: the last one acted
	planOnlySince time.Time

	mu         sync.Mutex
	cancelPass context.CancelFunc // of the running periodic pass; nil: none; guarded by mu
}

// planInterval is the interval between two passes for containers that only plan: operators read
// their results.
const planInterval = 5 * time.Minute

// endLimit bounds the call in flight of a periodic pass once a relief waits for the pass to end.
const endLimit = 2 * time.Second

// Policy contains the settings that Reconfigure changes.
type Policy struct {
	Collect            config.Collect
	Containers, Images time.Duration // periods; 0: never
}

// Start starts a Runner. It owns the Collector; others may call only Hold and Release. report
// receives each result, in the Runner's goroutine. Call Close at the end.
func Start(c *Collector, s Schedule, report func(Result)) *Runner {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Runner{
		c: c, schedule: s, report: report, cancel: cancel, done: make(chan struct{}),
		reliefs: make(chan []eviction.ReclaimRequest, 1),
		policy:  make(chan Policy, 1),
	}
	go func() {
		defer close(r.done)
		r.run(ctx)
	}()
	return r
}

// Relieve requests an immediate pass for a disk that is short. A periodic pass ends after its
// current step, or after endLimit. Relieve never blocks. It replaces a pending request.
func (r *Runner) Relieve(wishes []eviction.ReclaimRequest) {
	select {
	case <-r.reliefs:
	default:
	}
	select {
	case r.reliefs <- wishes:
	default: // another caller requests a pass at the same time
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancelPass != nil {
		time.AfterFunc(endLimit, r.cancelPass) // harmless after the end of the pass
	}
}

// Reconfigure sets another policy. A periodic pass ends after its current step. Reconfigure never
// blocks. Only one goroutine may call it.
func (r *Runner) Reconfigure(p Policy) {
	select {
	case <-r.policy:
	default:
	}
	r.policy <- p
}

// Close cancels the running pass and waits for its end, but not longer than limit: a file system
// may hang.
func (r *Runner) Close(limit time.Duration) error {
	r.cancel()
	if !retry.Await(r.done, limit) {
		return fmt.Errorf("stop garbage collection: pass did not end within %v, a file system may hang",
			limit)
	}
	return nil
}

func (r *Runner) run(ctx context.Context) {
	if r.schedule.Detect {
		// reports problems of the state files
		r.report(r.c.Plan(ctx, Images, reclaim.Periodic))
	}
	for ctx.Err() == nil {
		what, at := r.schedule.Next(r.c.now())
		var due <-chan time.Time
		timer := time.NewTimer(time.Hour)
		if what != 0 {
			timer.Reset(at.Sub(r.c.now()))
			due = timer.C
		}
		select {
		case p := <-r.policy:
			r.adopt(p)
		case wishes := <-r.reliefs:
			r.adoptPending()
			r.report(r.c.Relieve(ctx, wishes))
		case <-due:
			r.periodic(ctx, what)
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// adopt sets the policy for the next passes.
func (r *Runner) adopt(p Policy) {
	r.c.o.Collect, r.planOnlySince = p.Collect, time.Time{}
	r.schedule.Containers, r.schedule.Images = p.Containers, p.Images
}

// adoptPending adopts a pending policy.
func (r *Runner) adoptPending() {
	select {
	case p := <-r.policy:
		r.adopt(p)
	default:
	}
}

// periodic runs a pass that a relief may end.
func (r *Runner) periodic(ctx context.Context, what Kind) {
	r.adoptPending()
	if len(r.reliefs) > 0 || what == Containers && r.repeatsPlan() { // a relief comes first
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.cancelPass = cancel
	r.mu.Unlock()
	result := r.c.perform(ctx, request{what: what, trigger: reclaim.Periodic, act: true,
		mustEnd: r.mustEnd})
	r.mu.Lock()
	r.cancelPass = nil
	r.mu.Unlock()
	if what == Containers {
		if r.planOnlySince = (time.Time{}); result.PlanOnly != "" && result.Err == nil {
			r.planOnlySince = result.Began
		}
	}
	r.report(result)
}

// mustEnd reports whether a relief or a policy waits for the end of a periodic pass.
func (r *Runner) mustEnd() bool { return len(r.reliefs) > 0 || len(r.policy) > 0 }

// repeatsPlan reports whether a pass for containers would only repeat a recent plan. The pass due
// nearest to planInterval after the last plan runs; half a period of tolerance covers timer jitter.
func (r *Runner) repeatsPlan() bool {
	since := r.c.now().Sub(r.planOnlySince)
	return !r.planOnlySince.IsZero() && since >= 0 && since < planInterval-r.schedule.Containers/2 &&
		r.c.planOnlyReason() != ""
}
