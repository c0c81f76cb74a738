package cluster

import (
	"math"
	"time"
)

// NoLimit is the rate from which a bucket limits nothing, a second: what is done takes an API call,
// and none is faster.
const NoLimit = 1000

// mostLate is how late a token may be taken for which somebody waits without the next one being
// later for it. Whoever takes them comes a little late each time, and of many a second those that
// this costs add up: at 20 a second a tenth of the rate is 5 ms.
const mostLate = 500 * time.Millisecond

// Bucket hands out one token at a time: so many a second, and none are saved up but those that were
// waited for, of the last mostLate. A rate of 0 hands out none. Those that one bucket hands out
// within any time are rate*(time+mostLate)+1 at most, whatever happens to the rate.
type Bucket struct {
	rate    float64
	ready   time.Time // when the next token may be taken, at this rate
	awaited bool      // somebody waits for it
}

// NewBucket makes one that has a token, or will have it when one that was taken at last has been
// made up for. The zero time: none was.
func NewBucket(now time.Time, rate float64, last time.Time) *Bucket {
	b := &Bucket{rate: max(rate, 0), ready: now}
	if rate > 0 && !last.IsZero() {
		b.ready = last.Add(interval(rate))
	}
	return b
}

// interval between two tokens.
func interval(rate float64) time.Duration {
	ns := float64(time.Second) / rate
	if ns > math.MaxInt64/4 {
		return math.MaxInt64 / 4
	}
	return time.Duration(math.Ceil(ns))
}

// Rate is what it has now, a second.
func (b *Bucket) Rate() float64 { return b.rate }

// SetRate changes the rate. One that has no token to give has none right after the change either,
// as upstream's (pkg/controller/nodelifecycle/scheduler/rate_limited_queue.go SwapLimiter, 1.36.3).
func (b *Bucket) SetRate(now time.Time, rate float64) {
	rate = max(rate, 0)
	if rate == b.rate {
		return
	}
	had := b.rate > 0 && !now.Before(b.ready)
	b.rate, b.awaited = rate, false
	switch {
	case had || rate == 0:
		b.ready = now
	default:
		b.ready = now.Add(interval(rate))
	}
}

// Take takes a token, if there is one.
func (b *Bucket) Take(now time.Time) bool {
	switch {
	case b.rate <= 0 || b.rate < NoLimit && now.Before(b.ready):
		return false
	case b.rate < NoLimit:
		from := now
		if b.awaited {
			from = now.Add(-min(mostLate, now.Sub(b.ready)))
		}
		b.ready = from.Add(interval(b.rate))
	}
	return true
}

// Await notes whether somebody waits for the next token.
func (b *Bucket) Await(someone bool) { b.awaited = someone }

// Again notes that what the last token was taken for is done only now: the next one is due an
// interval later.
func (b *Bucket) Again(now time.Time) {
	if b.rate > 0 && b.rate < NoLimit {
		if ready := now.Add(interval(b.rate)); ready.After(b.ready) {
			b.ready = ready
		}
	}
}

// Nth is when the nth token from now on is there, n from 1; the zero time: none will be, at this
// rate.
func (b *Bucket) Nth(now time.Time, n int) time.Time {
	next := b.Next(now)
	if next.IsZero() || b.rate >= NoLimit {
		return next
	}
	wait := float64(n-1) * float64(interval(b.rate))
	return next.Add(time.Duration(min(wait, math.MaxInt64/4)))
}

// Next is when a token is there; the zero time: none will be, at this rate.
func (b *Bucket) Next(now time.Time) time.Time {
	switch {
	case b.rate <= 0:
		return time.Time{}
	case b.rate >= NoLimit || b.ready.Before(now):
		return now
	}
	return b.ready
}
