package admission

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"jettison/api"
)

// counts are the gate's answers since the agent started.
type counts struct {
	admitted, refused, observed, unknown, heldOff atomic.Uint64
	took                                          latency

	mu      sync.Mutex
	reasons [2]map[string]uint64 // counts by reason: [0] of refused pods, [1] of observed pods
}

// maxReasons limits the reasons that are counted separately: tenants name extended resources.
const maxReasons = 32

const otherReasons = "other"

func (c *counts) refuse(reason string, observed bool) {
	of := 0
	if observed {
		of = 1
		c.observed.Add(1)
	} else {
		c.refused.Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reasons[of] == nil {
		c.reasons[of] = map[string]uint64{}
	}
	if _, ok := c.reasons[of][reason]; !ok && len(c.reasons[of]) >= maxReasons {
		reason = otherReasons
	}
	c.reasons[of][reason]++
}

// byReason returns the number of refused, or observed, pods by their first reason.
func (c *counts) byReason(observed bool) map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if observed {
		return maps.Clone(c.reasons[1])
	}
	return maps.Clone(c.reasons[0])
}

func (c *counts) fill(out *api.GateState) {
	out.Admitted, out.Refused, out.Observed = c.admitted.Load(), c.refused.Load(), c.observed.Load()
	out.HeldOff, out.Unknown = c.heldOff.Load(), c.unknown.Load()
	out.Reasons = c.byReason(false)
	for reason, n := range c.byReason(true) {
		if out.Reasons == nil {
			out.Reasons = map[string]uint64{}
		}
		out.Reasons[reason] += n
	}
	out.Answers = c.took.state()
}

// perDoubling is the number of buckets between a duration and its double: 2^(1/8) is 1.09.
const perDoubling = 8

// latency is a histogram of durations from 1 µs to 17 s. It takes no lock and allocates nothing.
type latency struct {
	buckets [perDoubling * 24]atomic.Uint64
	longest atomic.Int64
}

func (l *latency) add(d time.Duration) {
	at := 0
	if d > time.Microsecond {
		at = min(int(math.Ceil(perDoubling*math.Log2(float64(d)/float64(time.Microsecond)))),
			len(l.buckets)-1)
	}
	l.buckets[at].Add(1)
	for longest := l.longest.Load(); int64(d) > longest && !l.longest.CompareAndSwap(longest,
		int64(d)); {
		longest = l.longest.Load()
	}
}

// state returns the count, maximum and quantiles. A quantile is the upper bound of its bucket, at
// most a tenth too long.
func (l *latency) state() (out api.LatencyState) {
	var buckets [len(l.buckets)]uint64
	for i := range buckets {
		buckets[i] = l.buckets[i].Load()
		out.Count += buckets[i]
	}
	out.Max = time.Duration(l.longest.Load())
	quantile := func(q float64) time.Duration {
		wanted, sum := uint64(math.Ceil(q*float64(out.Count))), uint64(0)
		for i, n := range buckets {
			if sum += n; n > 0 && sum >= wanted {
				return min(time.Duration(math.Exp2(float64(i)/perDoubling)*float64(time.Microsecond)), out.Max)
			}
		}
		return 0
	}
	out.P50, out.P99 = quantile(0.5), quantile(0.99)
	return out
}
