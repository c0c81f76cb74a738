package metrics

import (
	"sync/atomic"
	"time"

	"jettison/api"
	"jettison/stats"
)

// Source is something that is read again and again. The zero value was never read. It allocates
// nothing.
type Source struct {
	errors Counter
	up     atomic.Bool
	last   atomic.Int64 // when it was last read, nanoseconds since 1970; 0: never
}

// Read tells that it was read, or why not.
func (s *Source) Read(err error) {
	s.up.Store(err == nil)
	if err != nil {
		s.errors.Add(1)
		return
	}
	s.last.Store(time.Now().UnixNano())
}

// Looks is what looks at the node and its pods count.
type Looks struct {
	Cheap, Slow, Victims, Full       Counter
	Delay                            *Histogram
	Memory, Allocatable, Tasks, Node Source
}

// Wakes is what the kernel told.
type Wakes struct{ Pressure, MemoryEvents, CgroupEvents, PIDsEvents Counter }

// Evictions is what evictions count.
type Evictions struct {
	Outcomes            Vec // eviction_signal, outcome, qos_class, dry_run
	ToKill, ToRecovery  *Histogram
	Predicted, Released Counter // bytes
	StepErrors          Vec     // step
}

// Reclaim is what the reclaim of cold memory counts, in bytes.
type Reclaim struct{ Asked, Freed, Refaulted Counter }

// Garbage is what garbage collection counts, by kind.
type Garbage struct {
	Removed, Freed, Failed Vec
	Success                Vec // when, in seconds since 1970
	Took                   *HistogramVec
}

// Parts are the counts of the agent's parts. A nil one has none.
type Parts struct {
	Looks      *Looks
	Wakes      *Wakes
	Evictions  *Evictions
	Reclaim    *Reclaim
	Garbage    *Garbage
	Operations *HistogramVec // of the runtime
	// Background are the sources that are read beside the loop, by names that stay; nil: there are
	// none.
	Background func(time.Time) []stats.SourceStatus
	// Dropped counts what was given up so far: records, frames.
	Records, Frames func() uint64
	// Refused and Observed count, by the first reason, pods that the gate refused, or would have.
	Refused, Observed func() map[string]uint64
}

// Now is what the loop has published.
type Now struct {
	State      *api.State
	Pressure   stats.NodePressure
	Thresholds []Threshold
	Met        map[stats.Signal]bool
	// the node does not have what they are about: nobody is blind for it
	Gone      map[stats.Signal]bool
	Pods, GC  string // mode_info
	HeldOff   int
	Protected int
}

// Threshold is one, in the signal's unit.
type Threshold struct {
	Signal stats.Signal
	Hard   bool
	Limit  uint64
	Known  bool // else it is a share of a capacity that is not known
}
