package reclaim

import (
	"fmt"
	"math"
	"time"

	"jettison/stats"
)

// Bounds of the governor.
const (
	gainShare    = 0.25    // of what was asked for has to come back, or it does not pay
	refaultShare = 0.5     // of what came back may be read in again
	judgedBytes  = 4 << 20 // what was asked for less is lost in what else happens
	failures     = 2       // in a row, and it is off
	firstOff     = 5 * time.Minute
	longestOff   = time.Hour
	firstRate    = 64 << 20 // bytes a second that are reclaimed, before it was measured
	// that it counts as at least: after one very slow time nothing would ever be tried, and measured,
	// again
	leastRate = 8 << 20
)

// MemoryEffect is what became of a plan, as it stands in the record of the decision.
type MemoryEffect struct {
	Kind      MemoryKind
	Signal    stats.Signal // that was short
	Began     time.Time
	Took      time.Duration
	Pods      []MemoryAsk // that were asked, with what they were asked for until it was stopped
	Bytes     uint64      // planned
	Asked     uint64      // bytes that the kernel was asked for
	Before    stats.Opt[uint64]
	After     stats.Opt[uint64] // what was available of Signal, before and after
	Fell      uint64            // by how much it would have fallen meanwhile, by the rate seen before
	Freed     stats.Opt[uint64] // by how much the pods' cgroups shrank, in bytes
	Refaulted stats.Opt[uint64] // bytes that the pods read in again soon after
	// for an eviction, which gives memory back too: such an effect cannot be judged
	Stopped bool
	// Final: Refaulted is known, as far as the kernel tells. Before that the effect cannot be judged.
	Final bool
	Why   string // nothing was asked, in words
	Err   error  // of the last pod that could not be asked
}

// Gain is what came back of the signal, in bytes, below 0 where it went on falling faster than
// before. What the pods' cgroups did not give came from elsewhere. ok: it is known.
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

// pays judges an effect. judged is false where it says nothing.
func (e *MemoryEffect) pays() (pays, judged bool, why string) {
	gain, ok := e.Gain()
	if !e.Final || e.Stopped || !ok || e.Asked < judgedBytes {
		return false, false, ""
	}
	switch {
	case float64(gain) < gainShare*float64(e.Asked):
		return false, true, fmt.Sprintf("%d MiB of %v were asked for, %d MiB came back", e.Asked>>20,
			e.Kind, gain>>20)
	case e.Refaulted.OK && float64(e.Refaulted.V) > refaultShare*float64(gain):
		return false, true, fmt.Sprintf("%d MiB of %v came back, %d MiB were read in again", gain>>20,
			e.Kind, e.Refaulted.V>>20)
	}
	return true, true, ""
}

// MemoryGovernor turns the reclaim of memory off where it does not pay, each kind by itself, and
// measures how fast it is. The zero value lets everything be tried. One goroutine uses it.
type MemoryGovernor struct{ kinds [memoryKinds]governed }

type governed struct {
	failed int           // in a row
	until  time.Time     // off so long
	off    time.Duration // last time; 0: not yet, or it has paid since
	why    string
	rate   float64 // bytes a second; 0: not measured
}

// Allows says whether a kind may be tried now, or in words why not.
func (g *MemoryGovernor) Allows(now time.Time, k MemoryKind) (ok bool, why string) {
	s := &g.kinds[k]
	if now.Before(s.until) {
		return false, fmt.Sprintf("off for another %v: %s", s.until.Sub(now).Round(time.Second), s.why)
	}
	return true, ""
}

// Rate is how many bytes a second come back, as far as it was measured.
func (g *MemoryGovernor) Rate(k MemoryKind) float64 {
	if rate := g.kinds[k].rate; rate > 0 {
		return max(rate, leastRate)
	}
	return firstRate
}

// MemoryVerdict is what the governor makes of an effect.
type MemoryVerdict struct {
	Judged bool   // false: the effect says nothing
	Pays   bool   // it did
	Why    string // it did not, in words
	// Off is until when the kind is not tried again; zero: it may be.
	Off time.Time
}

// Judge takes an effect into account, once it is final. Two in a row that did not pay turn the kind
// off, for 5 minutes; one more after that for twice as long, up to an hour.
func (g *MemoryGovernor) Judge(now time.Time, e *MemoryEffect) MemoryVerdict {
	s := &g.kinds[e.Kind]
	pays, judged, why := e.pays()
	if !judged {
		return MemoryVerdict{}
	}
	if rate := float64(e.Asked) / e.Took.Seconds(); e.Took > 0 {
		if s.rate == 0 {
			s.rate = rate
		}
		s.rate = (s.rate + rate) / 2
	}
	if pays {
		*s = governed{rate: s.rate}
		return MemoryVerdict{Judged: true, Pays: true}
	}
	v := MemoryVerdict{Judged: true, Why: why}
	if s.failed++; s.failed >= failures {
		s.off = min(max(2*s.off, firstOff), longestOff)
		s.until, s.why = now.Add(s.off), why
		v.Off = s.until
	}
	return v
}
