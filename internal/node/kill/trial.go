package kill

import (
	"context"
	"sync"
	"time"

	"jettison/api"
	"jettison/cgroup"
	"jettison/internal/base/logthrottle"
	"jettison/internal/base/retry"
)

// Pauses after an inconclusive self-test: the first, and the longest.
const (
	firstPause = 10 * time.Second
	maxPause   = time.Hour
)

// Trial runs the self-test for the loop: immediately at the start, or later in a goroutine if a
// resource is short then. The loop owns it. Call Wait at the end.
type Trial struct {
	fs   *cgroup.FS
	own  func() string // cgroup of this process; empty: it is in no pod
	log  *logthrottle.Logger
	test func(context.Context, *cgroup.FS, string) Report

	postponed bool          // another self-test is needed
	due       time.Time     // the earliest time for it
	pause     time.Duration // before it; 0: no self-test was inconclusive
	cancel    func()        // ends the running self-test; nil: none runs
	done      chan Report   // one slot: the report of the running self-test

	running sync.WaitGroup // the running self-test
}

// NewTrial returns a Trial that has not run yet.
func NewTrial(fs *cgroup.FS, own func() string, log *logthrottle.Logger) *Trial {
	return &Trial{fs: fs, own: own, log: log, test: SelfTest, done: make(chan Report, 1)}
}

// AtStart runs the self-test and returns its report, unless a resource that processes use is short.
// Then it postpones the test, because the first look cannot wait, and returns false. It also
// returns false for an inconclusive report that is retried.
func (t *Trial) AtStart(ctx context.Context, now time.Time, short bool) (report Report, ok bool) {
	if short {
		t.postponed = true
		//log: A threshold is met at the start, so the agent runs its self-test later. Until then it
		//  does not know which steps of the kill ladder work on this node; evictions try them in order.
		//do: Nothing, unless the self-test does not run after the pressure has ended.
		t.log.Warn("self-test postponed, kill steps untested", api.EventEviction.Attr())
		return Report{}, false
	}
	report = t.test(ctx, t.fs, t.own())
	return report, !t.retry(now, &report)
}

// retry schedules another self-test if this one was inconclusive: on a starved node its process may
// not have started or ended in time.
func (t *Trial) retry(now time.Time, r *Report) bool {
	if !r.Inconclusive() {
		return false
	}
	t.pause = retry.Backoff(t.pause, firstPause, maxPause)
	t.postponed, t.due = true, now.Add(t.pause)
	//log: The self-test does not know yet whether a step that kills works, for example because its
	//  process did not start in time. The agent retries it with backoff. The keys name each step and
	//  its result.
	t.log.Info("self-test inconclusive, will retry",
		append(r.Log(), "after", t.pause, api.EventEviction.Attr())...)
	return true
}

// Done returns the channel with the report of a postponed self-test.
func (t *Trial) Done() <-chan Report { return t.done }

// Tick starts a postponed self-test in a goroutine when it is due. Call it while no resource that
// processes use is short and no pod is being evicted. A disk may stay short for days and does not
// postpone the test.
func (t *Trial) Tick(ctx context.Context, now time.Time) {
	if !t.postponed || t.cancel != nil || now.Before(t.due) {
		return
	}
	t.postponed = false
	ctx, t.cancel = context.WithCancel(ctx)
	test, fs, own, done := t.test, t.fs, t.own(), t.done
	//log: No threshold is met and no eviction is in progress, so the agent runs the self-test that it
	//  postponed earlier.
	t.log.Info("running postponed self-test", api.EventEviction.Attr())
	t.running.Go(func() { done <- test(ctx, fs, own) })
}

// Stop cancels a running self-test while a resource is short, and postpones it. Call it after the
// kill.
func (t *Trial) Stop() {
	if t.cancel != nil {
		t.postponed = true
		t.cancel()
	}
}

// OnDone handles the report received from Done. It returns false if the report does not count: the
// self-test was stopped or is retried, or ctx ended.
func (t *Trial) OnDone(ctx context.Context, now time.Time, r *Report) (ok bool) {
	t.cancel()
	t.cancel = nil
	return !t.postponed && ctx.Err() == nil && !t.retry(now, r)
}

// Wait waits for the running self-test.
func (t *Trial) Wait() { t.running.Wait() }
