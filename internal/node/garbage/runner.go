package garbage

import (
	"context"
	"errors"
	"sync"
	"time"

	"jettison/eviction"
	"jettison/internal/base/retry"
	"jettison/internal/node/config"
	"jettison/reclaim"
)

// Runner makes passes in a goroutine of its own: those that are due, and those that are asked for.
type Runner struct {
	c        *Collector
	schedule Schedule
	report   func(Result)
	cancel   context.CancelFunc
	done     chan struct{}
	asked    chan []eviction.Wish // one slot: the newest replaces one that was not taken
	policy   chan Policy          // likewise

	// when a pass for containers last found that nothing may be removed; zero: it may
	observed time.Time

	mu  sync.Mutex
	end context.CancelFunc // of the periodic pass under way; nil: none is. mu guards it
}

// observeAgain is between two passes for containers that may only plan: what they find is for
// people to read.
const observeAgain = 5 * time.Minute

// endLimit is what a call of a periodic pass still has when a relief waits for the pass to end.
const endLimit = 2 * time.Second

// Policy is what a Runner is told anew while it runs.
type Policy struct {
	Collect            config.Collect
	Containers, Images time.Duration // periods; 0: never
}

// Start starts a Runner, which has the Collector to itself but for Hold and Release. report gets
// each result, in the Runner's goroutine. Close it.
func Start(c *Collector, s Schedule, report func(Result)) *Runner {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Runner{
		c: c, schedule: s, report: report, cancel: cancel, done: make(chan struct{}),
		asked:  make(chan []eviction.Wish, 1),
		policy: make(chan Policy, 1),
	}
	go func() {
		defer close(r.done)
		r.run(ctx)
	}()
	return r
}

// Relieve has a pass made at once for a disk that is short. A periodic one ends after the step that
// it is at, or in its middle if that takes long. It never blocks. A relief that was asked for and
// not begun is replaced.
func (r *Runner) Relieve(wishes []eviction.Wish) {
	select {
	case <-r.asked:
	default:
	}
	select {
	case r.asked <- wishes:
	default: // another caller asks at the same time
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		time.AfterFunc(endLimit, r.end) // harmless once the pass is over
	}
}

// Reconfigure has it go by another policy after the step that a periodic pass is at. It never
// blocks, and is for one goroutine.
func (r *Runner) Reconfigure(p Policy) {
	select {
	case <-r.policy:
	default:
	}
	r.policy <- p
}

// Close ends the pass under way and waits for that, but not longer than limit: a file system may
// hang.
func (r *Runner) Close(limit time.Duration) error {
	r.cancel()
	if !retry.Await(r.done, limit) {
		return errors.New("garbage collection does not end: a file system that hangs")
	}
	return nil
}

func (r *Runner) run(ctx context.Context) {
	if r.schedule.Detect {
		// what was wrong with what is remembered is in it
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
		case wishes := <-r.asked:
			r.latest()
			r.report(r.c.Relieve(ctx, wishes))
		case <-due:
			r.periodic(ctx, what)
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// adopt goes by another policy from now on.
func (r *Runner) adopt(p Policy) {
	r.c.o.Collect, r.observed = p.Collect, time.Time{}
	r.schedule.Containers, r.schedule.Images = p.Containers, p.Images
}

// latest adopts a policy that waits.
func (r *Runner) latest() {
	select {
	case p := <-r.policy:
		r.adopt(p)
	default:
	}
}

// periodic makes a pass that a relief may end.
func (r *Runner) periodic(ctx context.Context, what What) {
	r.latest()
	if len(r.asked) > 0 || what == Containers && r.onlyPlanned() { // both at once: that comes first
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	r.end = cancel
	r.mu.Unlock()
	result := r.c.perform(ctx, request{what: what, trigger: reclaim.Periodic, act: true,
		ended: r.wanted})
	r.mu.Lock()
	r.end = nil
	r.mu.Unlock()
	if what == Containers {
		if r.observed = (time.Time{}); result.Observed != "" && result.Err == nil {
			r.observed = result.Began
		}
	}
	r.report(result)
}

// wanted: something waits for a periodic pass to end.
func (r *Runner) wanted() bool { return len(r.asked) > 0 || len(r.policy) > 0 }

// onlyPlanned reports whether a pass for containers would only plan what the last one has planned a
// moment ago. The one that is due nearest to observeAgain after it is made: a timer is never late
// by the same amount twice.
func (r *Runner) onlyPlanned() bool {
	since := r.c.now().Sub(r.observed)
	return !r.observed.IsZero() && since >= 0 && since < observeAgain-r.schedule.Containers/2 &&
		r.c.observes() != ""
}
