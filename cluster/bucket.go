package cluster

import (
	"math"
	"time"
)

// NoLimit is the rate per second from which a bucket limits nothing: API calls are slower.
const NoLimit = 1000

// maxCredit bounds the lateness of a waiting caller that does not delay the next token. Callers
// take each token a little late, and the delays would add up: at 20 tokens per second, 5 ms each
// reduce the rate by a tenth.
const maxCredit = 500 * time.Millisecond

// Bucket is a rate limit that hands out one token at a time. It does not save unused tokens; a
// caller that waited gets up to maxCredit back. With rate 0 it hands out no tokens. Within any
// period d, at most rate*(d+maxCredit)+1 tokens are handed out, even if the rate changes.
type Bucket struct {
	rate    float64
	ready   time.Time // earliest time of the next token, at this rate
	waiting bool      // a caller waits for the next token
}

// NewBucket returns a bucket with a token at now. If last is set, the first token is due one
// interval after it instead.
func NewBucket(now time.Time, rate float64, last time.Time) *Bucket {
	b := &Bucket{rate: max(rate, 0), ready: now}
	if !last.IsZero() {
		b.ready = last.Add(interval(b.rate))
	}
	return b
}

// interval returns the time between two tokens, bounded for a rate of 0.
func interval(rate float64) time.Duration {
	ns := float64(time.Second) / rate
	if ns > math.MaxInt64/4 {
		return math.MaxInt64 / 4
	}
	return time.Duration(math.Ceil(ns))
}

// Rate returns the current rate per second.
func (b *Bucket) Rate() float64 { return b.rate }

// SetRate changes the rate. An empty bucket is still empty right after the change, as in
// Kubernetes (pkg/controller/nodelifecycle/scheduler/rate_limited_queue.go SwapLimiter, 1.37.2).
func (b *Bucket) SetRate(now time.Time, rate float64) {
	rate = max(rate, 0)
	if rate == b.rate {
		return
	}
	available := b.rate > 0 && !now.Before(b.ready)
	b.rate, b.waiting, b.ready = rate, false, now
	if !available {
		b.ready = now.Add(interval(rate))
	}
}

// Take takes a token and reports whether one was available.
func (b *Bucket) Take(now time.Time) bool {
	switch {
	case b.rate <= 0 || b.rate < NoLimit && now.Before(b.ready):
		return false
	case b.rate < NoLimit:
		from := now
		if b.waiting {
			from = now.Add(-min(maxCredit, now.Sub(b.ready)))
		}
		b.ready = from.Add(interval(b.rate))
	}
	return true
}

// SetWaiting records whether a caller waits for the next token.
func (b *Bucket) SetWaiting(waiting bool) { b.waiting = waiting }

// Restart delays the next token to one interval after now: the action of the last token completed
// only now.
func (b *Bucket) Restart(now time.Time) {
	if b.rate < NoLimit {
		if ready := now.Add(interval(b.rate)); ready.After(b.ready) {
			b.ready = ready
		}
	}
}

// NthToken returns the time of the nth token from now, n from 1; the zero time: none at this rate.
func (b *Bucket) NthToken(now time.Time, n int) time.Time {
	next := b.NextToken(now)
	if next.IsZero() || b.rate >= NoLimit {
		return next
	}
	wait := float64(n-1) * float64(interval(b.rate))
	return next.Add(time.Duration(min(wait, math.MaxInt64/4)))
}

// NextToken returns the time of the next token; the zero time: none at this rate.
func (b *Bucket) NextToken(now time.Time) time.Time {
	switch {
	case b.rate <= 0:
		return time.Time{}
	case b.rate >= NoLimit || b.ready.Before(now):
		return now
	}
	return b.ready
}
