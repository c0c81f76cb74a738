package reclaim

import (
	"fmt"
	"math"
	"time"

	"jettison/stats"
)

// Limits of the governor.
const (
	gainShare    = 0.25    // minimum share of the requested memory that must be freed
	refaultShare = 0.5     // maximum share of the freed memory that may be faulted in again
	judgedBytes  = 4 << 20 // effects of smaller requests cannot be distinguished from noise
	failures     = 2       // insufficient effects in a row that disable the kind
	firstOff     = 5 * time.Minute
	maxOff       = time.Hour
	firstRate    = 64 << 20 // bytes per second, before the first measurement
	// lower limit of the rate: without this limit, one very slow plan would prevent all later plans
	// and measurements
	minRate = 8 << 20
)

// MemoryEffect is the result of a plan, as stored in the record of the decision.
type MemoryEffect struct {
	Kind      MemoryKind
	Signal    stats.Signal // signal that was short
	Began     time.Time
	Took      time.Duration
	Pods      []MemoryRequest // pods reclaimed from, with the amounts requested before the stop
	Bytes     uint64          // planned
	Asked     uint64          // bytes requested from the kernel
	Before    stats.Opt[uint64]
	After     stats.Opt[uint64] // available amount of Signal, before and after
	Fell      uint64            // expected decrease during the reclaim, at the previous rate
	Freed     stats.Opt[uint64] // bytes by which the pods' cgroups shrank
	Refaulted stats.Opt[uint64] // bytes that the pods faulted in again soon after
	// stopped for an eviction, which also frees memory, so that the effect cannot be judged
	Stopped bool
	// Final: Refaulted is known, if the kernel reports it. Before that, an effect cannot be judged.
	Final bool
	Why   string // reason why nothing was requested
	Err   error  // of the last pod that could not be reclaimed from
}

// Gain returns the increase of the signal in bytes, negative if it fell faster than before. The
// gain is limited to the memory that the pods' cgroups lost. ok reports whether the gain is known.
func (e *MemoryEffect) Gain() (bytes int64, ok bool) {
	if !e.Before.OK || !e.After.OK {
		return 0, false
	}
	gain := float64(e.After.V) - float64(e.Before.V) + float64(e.Fell)
	if e.Freed.OK {
		gain = min(gain, float64(e.Freed.V))
	}
	return int64(max(min(gain, math.MaxInt64/2), math.MinInt64/2)), true
}

// judge reports whether an effect was worth its cost. judged is false if the effect allows no
// judgement.
func (e *MemoryEffect) judge() (worthwhile, judged bool, why string) {
	gain, ok := e.Gain()
	if !e.Final || e.Stopped || !ok || e.Asked < judgedBytes {
		return false, false, ""
	}
	switch {
	case float64(gain) < gainShare*float64(e.Asked):
		return false, true, fmt.Sprintf("requested %dMi of %v, freed %dMi", e.Asked>>20, e.Kind,
			gain>>20)
	case e.Refaulted.OK && float64(e.Refaulted.V) > refaultShare*float64(gain):
		return false, true, fmt.Sprintf("freed %dMi of %v, %dMi faulted in again", gain>>20,
			e.Kind, e.Refaulted.V>>20)
	}
	return true, true, ""
}

// MemoryGovernor disables proactive reclaim, for each kind separately, if it frees too little, and
// measures its rate. The zero value allows all kinds. It is not safe for concurrent use.
type MemoryGovernor struct{ kinds [memoryKinds]kindState }

type kindState struct {
	failed int           // in a row
	until  time.Time     // disabled until then
	off    time.Duration // last time for which the kind was disabled; 0: never since the last success
	why    string
	rate   float64 // bytes a second; 0: not measured
}

// Allows reports whether a kind is enabled now; why is the reason if it is disabled.
func (g *MemoryGovernor) Allows(now time.Time, k MemoryKind) (ok bool, why string) {
	s := &g.kinds[k]
	if now.Before(s.until) {
		return false, fmt.Sprintf("disabled for another %v: %s", s.until.Sub(now).Round(time.Second),
			s.why)
	}
	return true, ""
}

// Rate returns the measured rate of reclaim in bytes per second, or a default.
func (g *MemoryGovernor) Rate(k MemoryKind) float64 {
	if rate := g.kinds[k].rate; rate > 0 {
		return max(rate, minRate)
	}
	return firstRate
}

// MemoryVerdict is the judgement of an effect.
type MemoryVerdict struct {
	Judged     bool   // false: the effect allows no judgement
	Worthwhile bool   // the effect was worth its cost
	Why        string // why it was not worth its cost
	// Off is the end of the time in which the kind is disabled; zero: it is enabled.
	Off time.Time
}

// Judge records a final effect. Two insufficient effects in a row disable the kind for 5 minutes.
// Each further insufficient effect doubles the time, up to an hour.
func (g *MemoryGovernor) Judge(now time.Time, e *MemoryEffect) MemoryVerdict {
	s := &g.kinds[e.Kind]
	worthwhile, judged, why := e.judge()
	if !judged {
		return MemoryVerdict{}
	}
	if rate := float64(e.Asked) / e.Took.Seconds(); e.Took > 0 {
		if s.rate == 0 {
			s.rate = rate
		}
		s.rate = (s.rate + rate) / 2
	}
	if worthwhile {
		*s = kindState{rate: s.rate}
		return MemoryVerdict{Judged: true, Worthwhile: true}
	}
	v := MemoryVerdict{Judged: true, Why: why}
	if s.failed++; s.failed >= failures {
		s.off = min(max(2*s.off, firstOff), maxOff)
		s.until, s.why = now.Add(s.off), why
		v.Off = s.until
	}
	return v
}
