package admission

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"jettison/api"
)

// counts is what was answered since the agent started.
type counts struct {
	admitted, refused, observed, unknown, heldOff atomic.Uint64
	took                                          latency

	mu      sync.Mutex
	reasons map[string]uint64 // of refused and observed
}

// maxReasons bounds the reasons that are told apart: a tenant names extended resources.
const maxReasons = 32

const otherReasons = "other"

func (c *counts) refuse(reason string, observed bool) {
	if observed {
		c.observed.Add(1)
	} else {
		c.refused.Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reasons == nil {
		c.reasons = map[string]uint64{}
	}
	if _, ok := c.reasons[reason]; !ok && len(c.reasons) >= maxReasons {
		reason = otherReasons
	}
	c.reasons[reason]++
}

func (c *counts) fill(out *api.GateState) {
	out.Admitted, out.Refused, out.Observed = c.admitted.Load(), c.refused.Load(), c.observed.Load()
	out.HeldOff, out.Unknown = c.heldOff.Load(), c.unknown.Load()
	c.mu.Lock()
	out.Reasons = maps.Clone(c.reasons)
	c.mu.Unlock()
	out.Answers = c.took.state()
}

// perDoubling is how many classes of durations there are up to one that is twice as long: 2^(1/8) is 1.09.
const perDoubling = 8

// latency counts durations in classes, from a microsecond to 17 s. It has no lock, and allocates nothing.
type latency struct {
	classes [perDoubling * 24]atomic.Uint64
	longest atomic.Int64
}

func (l *latency) add(d time.Duration) {
	at := 0
	if d > time.Microsecond {
		at = min(int(math.Ceil(perDoubling*math.Log2(float64(d)/float64(time.Microsecond)))), len(l.classes)-1)
	}
	l.classes[at].Add(1)
	for longest := l.longest.Load(); int64(d) > longest && !l.longest.CompareAndSwap(longest, int64(d)); {
		longest = l.longest.Load()
	}
}

// state has of each quantile the upper bound of its class, a tenth too long at most.
func (l *latency) state() (out api.LatencyState) {
	var classes [len(l.classes)]uint64
	for i := range classes {
		classes[i] = l.classes[i].Load()
		out.Count += classes[i]
	}
	out.Max = time.Duration(l.longest.Load())
	quantile := func(q float64) time.Duration {
		wanted, sum := uint64(math.Ceil(q*float64(out.Count))), uint64(0)
		for i, n := range classes {
			if sum += n; n > 0 && sum >= wanted {
				return min(time.Duration(math.Exp2(float64(i)/perDoubling)*float64(time.Microsecond)), out.Max)
			}
		}
		return 0
	}
	out.P50, out.P99 = quantile(0.5), quantile(0.99)
	return out
}
