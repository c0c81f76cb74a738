package deliver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"jettison/api"
	"jettison/internal/bridge/kube"
	"jettison/internal/bridge/verdict"
)

const (
	// maxRejected bounds how many rejected writes a pass tries.
	maxRejected = 4
	// maxSteps bounds how often a pass judges one entry.
	maxSteps = 6
	// writeWait is how long the loop waits for a write. A webhook or a large object may take longer
	// for one pod: if the server still serves reads, the write stays in flight and the loop goes
	// on.
	writeWait = time.Second
)

// pass does all that is due: first the statuses in the order of the records, then the next event.
// It returns when more is due.
func (d *Deliverer) pass(ctx context.Context) time.Duration {
	began := time.Now()
	err := d.findMode(ctx)
	if err == nil {
		err = d.writeStatuses(ctx)
	}
	if ctx.Err() != nil {
		return idleWait
	}
	if d.record(err); err == nil || isRejection(err) {
		d.sendEvent(ctx)
	}
	d.queue.dropFinished(func(e *entry) bool { return e.settled && e.final() && d.unsent(e) == nil })
	return d.nextPass(began)
}

// findMode finds out once whether statuses are written: when the server is reachable, so that the
// first eviction does not wait for it.
func (d *Deliverer) findMode(ctx context.Context) error {
	if d.modeKnown {
		return nil
	}
	if _, synced := d.o.Pods.Synced(); !synced && len(d.queue.entries) == 0 &&
		len(d.gaps.events) == 0 {
		return nil
	}
	write, err := d.o.Status(ctx)
	if err != nil {
		return err
	}
	d.writeStatus, d.modeKnown, d.breaker.answered = write, true, true
	return nil
}

// writeStatuses writes what pods' statuses need. An error: the server is unreachable, or rejects
// writes (rejection).
func (d *Deliverer) writeStatuses(ctx context.Context) error {
	synced, ok := d.o.Pods.Synced()
	if !ok { // else every pod would seem gone
		return nil
	}
	readable := false
	if d.breaker.delay > 0 {
		var err error
		if readable, err = d.probe(ctx); err != nil {
			return err
		}
	}
	var rejected error
	tries, most := 0, maxRejected
	if d.breaker.delay <= raceBackoff { // the next pass follows within a second
		most = 1
	}
	for _, e := range d.queue.inOrder() {
		if !d.queue.ready(e, time.Now()) {
			continue
		}
		err := d.settle(ctx, e, synced)
		switch {
		case err == nil:
			continue
		case kube.Unanswered(err), !readable && d.read(ctx, e.record.Pod) != nil:
			return err
		}
		readable, rejected = true, d.reject(e, err)
		if tries++; tries == most {
			break
		}
	}
	return rejected
}

// probe reads the pod of the first ready entry, before a half-open breaker lets writes pass. It
// reports whether the server served that.
func (d *Deliverer) probe(ctx context.Context) (readable bool, err error) {
	e := d.queue.firstReady(time.Now())
	if e == nil {
		return false, nil
	}
	if err := d.read(ctx, e.record.Pod); err != nil {
		return false, err
	}
	d.breaker.answered = true
	return true, nil
}

// read reads a pod to tell a slow or rejected write from an unreachable server. An error: the
// server is unreachable.
func (d *Deliverer) read(ctx context.Context, pod api.Victim) error {
	_, err := d.o.API.Pod(ctx, pod.Namespace, pod.Name)
	if kube.Means(err) == kube.Away {
		return err
	}
	return nil
}

// reject moves an entry to the end of the order, and applies Retry-After to it alone.
func (d *Deliverer) reject(e *entry, err error) error {
	e.write.rejectedAt = time.Now()
	if after, _ := kube.AskAgain(err); after > 0 {
		e.write.retryAfter = e.write.rejectedAt.Add(after)
		e.write.retryAt = e.write.retryAfter
	}
	d.report(e, slog.LevelWarn,
		"the API answers, and does not take a pod's status: it is told again, after those of others",
		"write", err)
	return rejection{err}
}

// settle does what one entry needs until it needs nothing.
func (d *Deliverer) settle(ctx context.Context, e *entry, synced time.Time) error {
	for range maxSteps {
		again, err := d.step(ctx, e, synced)
		if err != nil || !again {
			return err
		}
	}
	e.write.fail(time.Now(), maxBackoff, 0) // somebody else changes the pod as fast
	return nil
}

// step judges an entry and does one thing for it. again: it may need another.
func (d *Deliverer) step(ctx context.Context, e *entry, synced time.Time) (again bool, err error) {
	now, r := time.Now(), e.record
	pod := d.currentPod(e)
	began := r.Began.Time
	if pod == nil && !e.pod.gone && (began.IsZero() || synced.Sub(began) <= listLag) {
		return d.fetch(ctx, e) // the copy may not have it yet
	}
	v := verdict.Judge(now, r, pod, e.mends.failedAt)
	e.verdict = v
	if e.pod.unsure && v.Act <= verdict.Held { // the watch may be behind a write
		return d.fetch(ctx, e)
	}
	switch v.Act {
	case verdict.Over:
		if !e.settled {
			d.o.Log.Debug("nothing is written to the pod's status", append(d.fields(e), "reason", v.Why)...)
		}
		e.settled = true // until the agent sends more of it
		return false, nil
	case verdict.Held:
		e.settled = e.mends.held(now)
		return false, nil
	case verdict.Wait:
		e.mends.changed()
		return false, nil
	}
	if !d.writeStatus { // nor is it finished if an earlier bridge has begun it
		// the events of a chosen pod depend on what becomes of it
		e.settled = v.Act != verdict.Mark || e.final()
		return false, nil
	}
	s := &statusRequest{entry: e, verdict: v, response: make(chan response, 1)}
	if v.Act == verdict.Mend {
		if s.mends = d.mayMend(e, v, pod); s.mends == nil {
			return false, nil
		}
	}
	return d.write(ctx, s, verdict.Patch(now, v.Act, r, pod))
}

// currentPod returns the newer one of what the watch and the last response have of the entry's pod.
func (d *Deliverer) currentPod(e *entry) *v1.Pod {
	p, watched := &e.pod, d.o.Pods.Pod(e.record.Pod.Namespace, e.record.Pod.Name)
	if p.gone {
		return nil
	}
	if watched == nil || p.last == nil {
		return cmp.Or(watched, p.last)
	}
	order, err := resourceversion.CompareResourceVersion(watched.ResourceVersion,
		p.last.ResourceVersion)
	if err == nil && order < 0 {
		return p.last
	}
	p.last = nil // which may be large, and there may be many
	return watched
}

// statusRequest is a write of a pod's status in flight.
type statusRequest struct {
	entry    *entry
	verdict  verdict.Verdict
	mends    *int // the count to increase if it mends
	response chan response
	cancel   context.CancelFunc
}

// response is the response to a write.
type response struct {
	pod *v1.Pod
	err error
}

// write sends a patch and processes the response.
func (d *Deliverer) write(ctx context.Context, s *statusRequest, body []byte) (again bool,
	err error) {
	victim := s.entry.record.Pod
	request, cancel := context.WithCancel(ctx)
	s.entry.settled, s.cancel = false, cancel // also if it was settled, and was changed back since
	d.background.Go(func() {
		pod, err := d.o.API.PatchPodStatus(request, victim.Namespace, victim.Name, body)
		s.response <- response{pod, err}
	})
	return d.await(ctx, s)
}

// await waits for the response as long as nothing else can be done, and processes it. A slow write
// stays in flight while reads are served.
func (d *Deliverer) await(ctx context.Context, s *statusRequest) (again bool, err error) {
	if s.entry.write.slow {
		d.awaitInBackground(ctx, s)
		return false, nil
	}
	timer := time.NewTimer(writeWait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		s.cancel()
		return d.process(ctx, s, response{err: ctx.Err()})
	case got := <-s.response:
		s.cancel()
		return d.process(ctx, s, got)
	case <-timer.C:
	}
	unreachable := d.read(ctx, s.entry.record.Pod)
	if unreachable == nil && len(d.queue.inFlight) < maxInFlight {
		d.awaitInBackground(ctx, s)
		return false, nil
	}
	s.cancel()
	got := <-s.response
	switch {
	case !errors.Is(got.err, context.Canceled): // the response came all the same
	case unreachable != nil:
		got.err = unreachable
	default:
		s.entry.write.slow = true
		got.err = fmt.Errorf("patch pods/status: %d others are waited for: %w",
			len(d.queue.inFlight), context.DeadlineExceeded)
	}
	return d.process(ctx, s, got)
}
