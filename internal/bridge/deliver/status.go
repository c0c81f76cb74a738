package deliver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"jettison/internal/bridge/kube"
	"jettison/internal/bridge/verdict"
)

const (
	// maxRejected bounds the rejected writes of one pass.
	maxRejected = 4
	// maxSteps bounds the steps for one entry in one pass.
	maxSteps = 6
	// writeWait is the time that the loop waits for a write. A webhook or a large object may delay
	// one pod: if the server still serves reads, the write stays in flight and the loop continues.
	writeWait = time.Second
)

// pass makes all writes that are due: first the statuses in record order, then the next event. It
// returns the time until the next pass.
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
	d.queue.dropFinished(func(e *entry) bool {
		return e.settled && e.final() && len(d.unsentEvents(e)) == 0
	})
	return d.nextPass(began)
}

// findMode determines once whether statuses are written. It does so as soon as the server is
// reachable, so that the first eviction is not delayed.
func (d *Deliverer) findMode(ctx context.Context) error {
	if d.modeKnown {
		return nil
	}
	if _, synced := d.o.Pods.Synced(); !synced && len(d.queue.entries) == 0 &&
		len(d.gaps.events) == 0 {
		return nil
	}
	write, err := d.o.WriteStatus(ctx)
	if err != nil {
		return err
	}
	d.writeStatus, d.modeKnown, d.breaker.answered = write, true, true
	return nil
}

// writeStatuses writes the pod statuses that are due. It returns an error if the server is
// unreachable or rejects writes (rejection).
func (d *Deliverer) writeStatuses(ctx context.Context) error {
	synced, ok := d.o.Pods.Synced()
	if !ok { // every pod would look deleted
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
	tries, limit := 0, maxRejected
	if d.breaker.delay <= raceBackoff { // the next pass follows within a second
		limit = 1
	}
	for _, e := range d.queue.sorted() {
		if !d.queue.ready(e, time.Now()) {
			continue
		}
		err := d.settle(ctx, e, synced)
		switch {
		case err == nil:
			continue
		case isUnreachable(err), !readable && d.read(ctx) != nil:
			return err
		}
		readable, rejected = true, d.reject(e, err)
		if tries++; tries == limit {
			break
		}
	}
	return rejected
}

// probe makes a read before a half-open breaker lets writes pass, if any is due. It reports whether
// the server served the read.
func (d *Deliverer) probe(ctx context.Context) (readable bool, err error) {
	if !d.queue.anyReady(time.Now()) {
		return false, nil
	}
	if err := d.read(ctx); err != nil {
		return false, err
	}
	d.breaker.answered = true
	return true, nil
}

// read reads the node to tell a slow or failed request for a pod from an unreachable server. It
// reads no pod, because a proxy may reset the connection for each read of one pod. It returns an
// error only if the server is unreachable.
func (d *Deliverer) read(ctx context.Context) error {
	_, err := d.o.API.Node(ctx, d.o.Node)
	if kube.Classify(err) == kube.Unreachable {
		return unreachableError{err}
	}
	return nil
}

// reject moves an entry to the end of the order and applies Retry-After to it alone.
func (d *Deliverer) reject(e *entry, err error) error {
	e.write.rejectedAt = time.Now()
	if after, _ := kube.RetryAfter(err); after > 0 {
		e.write.retryAfter = e.write.rejectedAt.Add(after)
		e.write.retryAt = e.write.retryAfter
	}
	if keys, first := d.failureKeys(e, "rejected", "write", err); first {
		//log: A write of a pod status failed while the API server served reads. The bridge retries
		//  it after the other entries.
		//do: See error. Check admission webhooks and proxies in front of the API server.
		d.o.Log.Warn("pod status write rejected, retrying", keys...)
	}
	return rejection{err}
}

// settle repeats step until the entry needs nothing more.
func (d *Deliverer) settle(ctx context.Context, e *entry, synced time.Time) error {
	for range maxSteps {
		again, err := d.step(ctx, e, synced)
		if err != nil || !again {
			return err
		}
	}
	e.write.fail(time.Now(), maxBackoff, 0) // another client keeps changing the pod
	return nil
}

// step judges an entry and does one thing for it. again: the entry may need another step.
func (d *Deliverer) step(ctx context.Context, e *entry, synced time.Time) (again bool, err error) {
	now, r := time.Now(), e.record
	pod := d.currentPod(e)
	began := r.Began.Time
	if pod == nil && !e.pod.gone && (began.IsZero() || synced.Sub(began) <= listLag) {
		return d.fetch(ctx, e) // the copy may not contain the pod yet
	}
	v := verdict.Judge(now, r, pod, e.restores.failedAt)
	e.verdict = v
	if e.pod.uncertain && v.Act <= verdict.Hold { // the watch may be behind a write
		return d.fetch(ctx, e)
	}
	switch v.Act {
	case verdict.Done:
		if !e.settled {
			//log: The pod needs no status from the bridge. The key reason has the cause.
			d.o.Log.Debug("pod status needs no write", append(d.fields(e), "reason", v.Reason)...)
		}
		e.settled = true // until the agent sends the record again
		return false, nil
	case verdict.Hold:
		e.settled = e.restores.stable(now)
		return false, nil
	case verdict.Wait:
		e.restores.resetStable()
		return false, nil
	}
	if !d.writeStatus { // even if an earlier bridge has written parts of the status
		// the events of a chosen pod depend on its outcome
		e.settled = v.Act != verdict.Mark || e.final()
		return false, nil
	}
	s := &statusRequest{entry: e, verdict: v, version: pod.ResourceVersion, response: make(chan response, 1)}
	if v.Act == verdict.Restore {
		if s.restores = d.restoreCount(e, v, pod); s.restores == nil {
			return false, nil
		}
	}
	return d.write(ctx, s, verdict.Patch(now, v.Act, r, pod))
}

// currentPod returns the newer of the pods that the watch and the last response have for the entry.
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
	p.last = nil // release it: pods may be large and many
	return watched
}

// statusRequest is a pod status write in flight.
type statusRequest struct {
	entry    *entry
	verdict  verdict.Verdict
	version  string // the pod's resource version
	restores *int   // the counter to increase if the write restores the status
	response chan response
	cancel   context.CancelFunc
}

// response is the result of a write.
type response struct {
	pod *v1.Pod
	err error
	at  time.Time // when it arrived
}

// write sends a patch and processes the response.
func (d *Deliverer) write(ctx context.Context, s *statusRequest, body []byte) (again bool,
	err error) {
	victim := s.entry.record.Pod
	request, cancel := context.WithCancel(ctx)
	s.entry.settled, s.cancel = false, cancel // even if the status was settled and then reverted
	d.background.Go(func() {
		pod, err := d.o.API.PatchPodStatus(request, victim.Namespace, victim.Name, body)
		s.response <- response{pod, err, time.Now()}
	})
	return d.await(ctx, s)
}

// await waits up to writeWait for the response and processes it. A slow write stays in flight while
// the server serves reads.
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
	unreachable := d.read(ctx)
	if unreachable == nil && len(d.queue.inFlight) < maxInFlight {
		d.awaitInBackground(ctx, s)
		return false, nil
	}
	s.cancel()
	got := <-s.response
	switch {
	case !errors.Is(got.err, context.Canceled): // the response arrived before the cancellation
	case unreachable != nil:
		got.err = unreachable
	default:
		s.entry.write.slow = true
		got.err = fmt.Errorf("patch pods/status: stopped waiting, %d other writes in flight: %w",
			len(d.queue.inFlight), context.DeadlineExceeded)
	}
	return d.process(ctx, s, got)
}
