package metrics

import (
	"sync/atomic"
	"time"

	"jettison/api"
	"jettison/stats"
)

// Source counts the reads of a source. The zero value was never read. It allocates nothing.
type Source struct {
	errors Counter
	up     atomic.Bool
	last   atomic.Int64 // last successful read, nanoseconds since 1970; 0: never
}

// Read counts a read of the source, with its error.
func (s *Source) Read(err error) {
	s.up.Store(err == nil)
	if err != nil {
		s.errors.Add(1)
		return
	}
	s.last.Store(time.Now().UnixNano())
}

// Looks has the counts of looks.
type Looks struct {
	Cheap, Slow, Victims, Full       Counter
	Delay                            *Histogram
	Memory, Allocatable, Tasks, Node Source
}

// Wakes has the counts of kernel events that woke the loop.
type Wakes struct{ Pressure, MemoryEvents, CgroupEvents, PIDsEvents Counter }

// Evictions has the counts of evictions.
type Evictions struct {
	Outcomes            Vec // eviction_signal, outcome, qos_class, dry_run
	ToKill, ToRecovery  *Histogram
	Predicted, Released Counter // bytes
	StepErrors          Vec     // step
}

// Reclaim has the counts of proactive reclaim, in bytes.
type Reclaim struct{ Asked, Freed, Refaulted Counter }

// Garbage has the counts of garbage collection, by kind.
type Garbage struct {
	Removed, Freed, Failed Vec
	Success                Vec // end of the last pass, in seconds since 1970
	Took                   *HistogramVec
}

// Parts are the counts of the agent's parts. Counts of absent parts are nil.
type Parts struct {
	Looks      *Looks
	Wakes      *Wakes
	Evictions  *Evictions
	Reclaim    *Reclaim
	Garbage    *Garbage
	Operations *HistogramVec // of the runtime
	// Background returns the sources that are read in the background, with stable names; nil: none.
	Background func(time.Time) []stats.SourceStatus
	// Records and Frames return the number of dropped records and frames.
	Records, Frames func() uint64
	// Refused and Observed return the pods that the gate rejected, or would have rejected, by first
	// reason.
	Refused, Observed func() map[string]uint64
}

// Now is the state that the loop published last.
type Now struct {
	State      *api.State
	Pressure   stats.NodePressure
	Thresholds []Threshold
	Met        map[stats.Signal]bool
	// signals of resources that the node lacks, which need no observation
	Missing   map[stats.Signal]bool
	Pods, GC  string // mode_info
	HeldOff   int
	Protected int
}

// Threshold is a threshold in the signal's unit.
type Threshold struct {
	Signal stats.Signal
	Hard   bool
	Limit  uint64
	Known  bool // false: a share of an unknown capacity
}
