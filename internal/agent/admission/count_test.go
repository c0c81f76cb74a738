package admission

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"jettison/api"
	"jettison/internal/base/logthrottle"
)

// Refusals that are not logged in time are counted, and block no caller.
func TestMoreRefusalsThanQueued(t *testing.T) {
	a, part := gate(t, list("1", "1Gi", "10"), Options{Log: logthrottle.New(nil)})
	now := time.Now()
	part.Publish(now, nil, false)
	for i := range 3 * maxQueuedRefusals {
		a.Reject(now, sandbox(t, "default/p%d bu cpu=2", i), "")
	}
	if s := part.State(true); s.Refused != 3*maxQueuedRefusals || len(part.Refusals()) != maxQueuedRefusals {
		t.Errorf("%d refused, %d queued for the log, want %d and %d", s.Refused, len(part.Refusals()), 3*maxQueuedRefusals, maxQueuedRefusals)
	}
}

// A tenant that names resources creates at most maxReasons reasons; the sum stays complete.
func TestReasonsAreBounded(t *testing.T) {
	c := &counts{}
	for i := range 1000 {
		c.refuse(fmt.Sprint("OutOfexample.com/", i), false)
	}
	var out api.GateState
	c.fill(&out)
	sum := uint64(0)
	for _, n := range out.Reasons {
		sum += n
	}
	if len(out.Reasons) != maxReasons+1 || sum != 1000 || out.Refused != 1000 {
		t.Errorf("%d reasons of %d refusals, want %d of 1000", len(out.Reasons), sum, maxReasons+1)
	}
}

// A quantile is at most a tenth too long, and never longer than the longest duration.
func TestLatency(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var l latency
		all := rapid.SliceOfN(rapid.Int64Range(0, int64(10*time.Second)), 1, 200).Draw(rt, "durations")
		for _, d := range all {
			l.add(time.Duration(d))
		}
		slices.Sort(all)
		got := l.state()
		for _, c := range []struct {
			q   float64
			got time.Duration
		}{{0.5, got.P50}, {0.99, got.P99}} {
			exact := time.Duration(all[int(math.Ceil(c.q*float64(len(all))))-1])
			if most := max(time.Microsecond, exact*11/10); c.got < exact || c.got > most || c.got > got.Max {
				rt.Fatalf("quantile %v of %v = %v, want about %v", c.q, all, c.got, exact)
			}
		}
		if got.Count != uint64(len(all)) || got.Max != time.Duration(all[len(all)-1]) {
			rt.Fatalf("count and maximum of %v = %+v", all, got)
		}
	})
	var l latency
	l.add(time.Hour)
	if got := l.state(); got.P50 <= 10*time.Second || got.Max != time.Hour {
		t.Errorf("state after one hour's duration = %+v", got)
	}
	if got := (&latency{}).state(); got != (api.LatencyState{}) {
		t.Errorf("state without durations = %+v, want zero", got)
	}
}
