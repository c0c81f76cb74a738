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

// rejection wraps the error of a pod status write that the API server rejected while it still
// served reads. A webhook or a proxy may reject writes of this pod, or the server accepts no writes
// at all. The breaker opens as for an unreachable server, and the entry moves to the end of the
// order.
type rejection struct{ error }

func (r rejection) Unwrap() error { return r.error }

// isRejection reports whether err is the error of a write that failed while a read was served.
func isRejection(err error) bool {
	_, ok := errors.AsType[rejection](err)
	return ok
}

// breaker is the circuit breaker for the API server. It is closed while its delay is zero.
// Otherwise it is open until retryAt and then half-open: the next result closes or reopens it.
type breaker struct {
	backoff
	log         *slog.Logger
	failedAt    time.Time // time of the last failure
	earlyProbes int       // calls of probeEarly with effect, since the breaker was closed
	answered    bool      // the server has responded since the last result
	reported    bool      // "API server unreachable" is logged
}

// probeEarly makes the breaker half-open because the watch received an update. The first early
// probe comes minBackoff after the last failure; each further one doubles that delay.
func (b *breaker) probeEarly() {
	at := latest(b.retryAfter, b.failedAt.Add(min(minBackoff<<min(b.earlyProbes, 10), maxBackoff)))
	if b.retryAt.After(at) {
		b.retryAt = at
		b.earlyProbes++
	}
}

// shorten limits the delay to raceBackoff after the last failure.
func (b *breaker) shorten() {
	b.delay = raceBackoff
	b.retryAt = latest(b.retryAfter, b.failedAt.Add(retry.Jitter(raceBackoff)))
}

// record updates the breaker with the result of a pass or of a slow write. Success without a
// response changes nothing. maxDelay returns the longest delay; pending is the number of pending
// records.
func (b *breaker) record(err error, maxDelay func() time.Duration, pending int) {
	answered := b.answered
	b.answered = false
	if err == nil && !answered {
		return
	}
	rejected := isRejection(err)
	if (err == nil || rejected) && b.reported {
		b.reported = false
		//log: The API server responds to requests of the bridge again. Pending pod statuses and
		//  events are written now.
		b.log.Info("API server reachable again", "evictions", pending)
	}
	if err == nil {
		b.close()
		return
	}
	retryAfter := time.Duration(0)
	if !rejected { // the Retry-After of a rejected write applies to that pod only
		retryAfter, _ = kube.RetryAfter(err)
	}
	b.failedAt = time.Now()
	b.fail(b.failedAt, maxDelay(), retryAfter)
	if !rejected && !b.reported {
		b.reported = true
		//log: Requests to the API server fail, time out, or are answered with 401, 429 or 503.
		//  The bridge keeps the eviction records and retries with backoff.
		//do: Check the API server, the network of the node and the token of the bridge. The key
		//  error has the last failure.
		b.log.Warn("API server unreachable, retrying", "evictions", pending, "error", err)
	}
}

// close closes the breaker. If a response set a Retry-After in the future, it becomes half-open at
// that time.
func (b *breaker) close() {
	b.delay, b.earlyProbes, b.retryAt = 0, 0, time.Time{}
	if b.retryAfter.After(time.Now()) {
		b.retryAt = b.retryAfter
	}
}

// waitForAPI returns how long the breaker stays open. Zero or less: it is closed or half-open.
func (d *Deliverer) waitForAPI() time.Duration {
	if d.breaker.delay > raceBackoff && d.racesKubelet() { // the record is newer than the failure
		d.breaker.shorten()
	}
	return time.Until(d.breaker.retryAt)
}

// record passes the result of a pass or of a slow write to the breaker.
func (d *Deliverer) record(err error) {
	maxDelay := func() time.Duration {
		if d.racesKubelet() {
			return raceBackoff
		}
		return maxBackoff
	}
	d.breaker.record(err, maxDelay, len(d.queue.entries))
}

// racesKubelet reports whether the kubelet of an unsettled pod may set the pod to Failed itself.
func (d *Deliverer) racesKubelet() bool {
	return slices.ContainsFunc(d.queue.entries, func(e *entry) bool {
		pod := d.currentPod(e)
		return !e.settled && pod != nil && e.record.Disruption && verdict.EndsByItself(pod)
	})
}
