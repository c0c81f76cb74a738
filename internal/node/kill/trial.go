package kill

import (
	"context"
	"sync"

	"jettison/api"
	"jettison/cgroup"
	"jettison/internal/base/logthrottle"
)

// trialsMost is how often a self-test is made that finds nothing out.
const trialsMost = 3

// Trial is the self-test as the loop makes it: at once at the start, or later and beside the loop
// if something is short then. It belongs to the loop. Wait for it at the end.
type Trial struct {
	fs   *cgroup.FS
	own  func() string // cgroup of this process; empty: it is in no pod
	log  *logthrottle.Logger
	test func(context.Context, *cgroup.FS, string) Report

	putOff bool        // it is to be made
	tried  int         // how often it was made and found nothing out
	cancel func()      // of the one under way; nil: none is
	done   chan Report // one slot: what that found

	beside sync.WaitGroup // of the one under way
}

// NewTrial makes a Trial that was not made yet.
func NewTrial(fs *cgroup.FS, own func() string, log *logthrottle.Logger) *Trial {
	return &Trial{fs: fs, own: own, log: log, test: SelfTest, done: make(chan Report, 1)}
}

// AtStart makes the self-test now, unless something that processes take is short: then it is put
// off, for the first look cannot wait.
func (t *Trial) AtStart(ctx context.Context, short bool) (report Report, made bool) {
	if short {
		t.putOff = true
		t.log.Warn("self-test put off until no threshold is met any more: it is not known yet what "+
			"kills here", api.EventEviction.Attr())
		return Report{}, false
	}
	report = t.test(ctx, t.fs, t.own())
	return report, !t.again(&report)
}

// again has a self-test made once more that found nothing out of what kills: on a node that is
// starved its process may not even have begun to run in time, and what was not tried is not known
// to fail. The last one counts all the same.
func (t *Trial) again(r *Report) bool {
	if t.tried++; !r.untried() || t.tried >= trialsMost {
		return false
	}
	t.putOff = true
	t.log.Info("self-test: it could not be made, and is made again",
		append(r.Log(), api.EventEviction.Attr())...)
	return true
}

// Done is what a self-test beside the loop has found.
func (t *Trial) Done() <-chan Report { return t.done }

// Tick makes the self-test that was put off, beside the loop. It is called while nothing that
// processes take is short and no pod is being evicted. A disk may stay short for days, and is no
// reason to wait.
func (t *Trial) Tick(ctx context.Context) {
	if !t.putOff || t.cancel != nil {
		return
	}
	t.putOff = false
	ctx, t.cancel = context.WithCancel(ctx)
	test, fs, own, done := t.test, t.fs, t.own(), t.done
	t.log.Info("self-test, which was put off: no threshold is met", api.EventEviction.Attr())
	t.beside.Go(func() { done <- test(ctx, fs, own) })
}

// Stop has a self-test that is under way make room for what is short now: it is made later. To be
// called after the kill.
func (t *Trial) Stop() {
	if t.cancel != nil {
		t.putOff = true
		t.cancel()
	}
}

// OnDone takes what Done told. ok is false if the test was stopped, or is made again, so that it
// says nothing.
func (t *Trial) OnDone(ctx context.Context, r *Report) (ok bool) {
	t.cancel()
	t.cancel = nil
	return !t.putOff && ctx.Err() == nil && !t.again(r)
}

// Wait waits for the self-test that is under way.
func (t *Trial) Wait() { t.beside.Wait() }
