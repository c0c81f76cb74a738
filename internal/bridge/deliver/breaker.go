package deliver

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"jettison/internal/base/retry"
	"jettison/internal/bridge/kube"
	"jettison/internal/bridge/verdict"
)

// rejection is the error of a pod's write that the server did not accept while it served a read: a
// webhook or a proxy may have rejected it, or the server takes no writes. The breaker opens for it
// as for an unreachable server, and the pod comes last.
type rejection struct{ error }

func (r rejection) Unwrap() error { return r.error }

// isRejection reports whether a read was served while the write failed.
func isRejection(err error) bool {
	_, ok := errors.AsType[rejection](err)
	return ok
}

// breaker is the circuit breaker for the API server. It is closed while its delay is zero, else
// open until retryAt and then half-open: the next result closes it or opens it again.
type breaker struct {
	backoff
	log         *slog.Logger
	failedAt    time.Time // when it opened last
	earlyProbes int       // how often probeEarly made it half-open since it was closed
	answered    bool      // the server has responded since the last result
	reported    bool      // that the server is unreachable is logged
}

// probeEarly makes the breaker half-open because the watch has received something: as soon as after
// a first failure, and later each time.
func (b *breaker) probeEarly() {
	at := later(b.retryAfter, b.failedAt.Add(min(minBackoff<<min(b.earlyProbes, 10), maxBackoff)))
	if b.retryAt.After(at) {
		b.retryAt = at
		b.earlyProbes++
	}
}

// shorten limits the delay to raceBackoff from the last failure on.
func (b *breaker) shorten() {
	b.delay = raceBackoff
	b.retryAt = later(b.retryAfter, b.failedAt.Add(retry.Jitter(raceBackoff)))
}

// record takes the result of a pass or of a slow write. Success without a response changes nothing.
// waiting is the number of records.
func (b *breaker) record(err error, longest func() time.Duration, waiting int) {
	answered := b.answered
	b.answered = false
	if err == nil && !answered {
		return
	}
	rejected := isRejection(err)
	if (err == nil || rejected) && b.reported {
		b.reported = false
		b.log.Info("the API takes what it is told again", "evictions", waiting)
	}
	if err == nil {
		b.close()
		return
	}
	retryAfter := time.Duration(0)
	if !rejected { // else Retry-After is that of the one pod
		retryAfter, _ = kube.AskAgain(err)
	}
	b.failedAt = time.Now()
	b.fail(b.failedAt, longest(), retryAfter)
	if !rejected && !b.reported {
		b.reported = true
		b.log.Warn("the API is away: what it is to be told waits", "evictions", waiting, "error", err)
	}
}

// close closes the breaker, unless another response has asked for time: then it is half-open after
// that.
func (b *breaker) close() {
	b.delay, b.earlyProbes, b.retryAt = 0, 0, time.Time{}
	if b.retryAfter.After(time.Now()) {
		b.retryAt = b.retryAfter
	}
}

// waitForAPI returns how long the breaker stays open; not above zero: it is closed or half-open.
func (d *Deliverer) waitForAPI() time.Duration {
	if d.breaker.delay > raceBackoff && d.races() { // the pod came after the breaker opened
		d.breaker.shorten()
	}
	return time.Until(d.breaker.retryAt)
}

// record tells the breaker the result of a pass or of a slow write.
func (d *Deliverer) record(err error) {
	longest := func() time.Duration {
		if d.races() {
			return raceBackoff
		}
		return maxBackoff
	}
	d.breaker.record(err, longest, len(d.queue.entries))
}

// races reports whether an unsettled pod's kubelet may report by itself that the pod has failed.
func (d *Deliverer) races() bool {
	return slices.ContainsFunc(d.queue.entries, func(e *entry) bool {
		pod := d.currentPod(e)
		return !e.settled && pod != nil && e.record.Disruption && verdict.EndsByItself(pod)
	})
}
