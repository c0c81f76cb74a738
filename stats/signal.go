package stats

import (
	"strings"
	"time"
)

// Signal names an eviction signal, which thresholds refer to (kubelet
// pkg/kubelet/eviction/api/types.go).
type Signal string

// Pressure reports whether the signal is a share of time stalled, which is worse the higher it is.
func (s Signal) Pressure() bool { return strings.Contains(string(s), ".pressure.") }

// The kubelet's signals.
const (
	SignalMemoryAvailable            Signal = "memory.available"
	SignalAllocatableMemoryAvailable Signal = "allocatableMemory.available"
	SignalNodeFsAvailable            Signal = "nodefs.available"
	SignalNodeFsInodesFree           Signal = "nodefs.inodesFree"
	SignalImageFsAvailable           Signal = "imagefs.available"
	SignalImageFsInodesFree          Signal = "imagefs.inodesFree"
	SignalContainerFsAvailable       Signal = "containerfs.available"
	SignalContainerFsInodesFree      Signal = "containerfs.inodesFree"
	SignalPIDAvailable               Signal = "pid.available"
)

// Signals that only jettison has. A pressure signal is the share of time in which tasks stalled
// (PSI).
const (
	SignalSwapAvailable      Signal = "swap.available"
	SignalMemoryPressureFull Signal = "memory.pressure.full"
	SignalMemoryPressureSome Signal = "memory.pressure.some"
	SignalIOPressureFull     Signal = "io.pressure.full"
	SignalCPUPressureSome    Signal = "cpu.pressure.some"
)

// Signals lists all signals observed as an available amount, in display order.
var Signals = []Signal{
	SignalMemoryAvailable, SignalAllocatableMemoryAvailable, SignalSwapAvailable, SignalPIDAvailable,
	SignalNodeFsAvailable, SignalNodeFsInodesFree, SignalImageFsAvailable, SignalImageFsInodesFree,
	SignalContainerFsAvailable, SignalContainerFsInodesFree,
}

// MemoryAvailable selects the formula of memory.available.
type MemoryAvailable string

// The formulas. The kubelet's formula overestimates the available memory when the kernel itself
// uses memory (slab, page tables, sockets). The kernel's estimate accounts for that.
const (
	MemoryAvailableWorkingSet MemoryAvailable = "workingSet" // capacity - working set, as the kubelet does
	// MemAvailable plus the free pages on per-CPU lists
	MemoryAvailableKernel MemoryAvailable = "kernel"
	MemoryAvailableLower  MemoryAvailable = "lower" // the lower of both
)

// Direction is the side of a limit on which a signal is short.
type Direction bool

// The directions.
const (
	Falling Direction = false // less is worse: an amount that is available
	Rising  Direction = true  // more is worse: a share of time stalled
)

// ShareUnit is the value of an Observation for the whole time: shares of time are counted in
// millionths.
const ShareUnit = 1_000_000

// Observation is the value of one signal at a time. The zero value means not observed.
type Observation struct {
	Value     uint64 // in the signal's unit: the amount available, or the share of time stalled
	Capacity  uint64 // the reference for percentages
	Time      time.Time
	Direction Direction
	OK        bool
	// Gone: the source reports that the node lacks the resource, so it cannot be short.
	Gone   bool
	Reason string // why it is not observed
}

// Short reports whether the signal is beyond a limit, strictly.
func (o Observation) Short(limit uint64) bool {
	if o.Direction == Rising {
		return o.Value > limit
	}
	return o.Value < limit
}

// Better reports whether the value is better than another one: more available, or less time
// stalled.
func (o Observation) Better(than uint64) bool {
	if o.Direction == Rising {
		return o.Value < than
	}
	return o.Value > than
}

// Near reports whether the value is below times * limit. For a rising signal it reports whether the
// value is above limit / times.
func (o Observation) Near(limit, times uint64) bool {
	if o.Direction == Rising {
		return o.Value > limit/times
	}
	return o.Value/times < limit
}

// Left returns the distance from the value to a limit; 0 at the limit and beyond it.
func (o Observation) Left(limit uint64) uint64 {
	if o.Direction == Rising {
		return limit - min(o.Value, limit)
	}
	return o.Value - min(o.Value, limit)
}

// HalfGone reports whether less than half remains of the amount that was left at the value since.
func (o Observation) HalfGone(since uint64) bool {
	if o.Direction == Rising {
		return o.Capacity-min(o.Value, o.Capacity) < (o.Capacity-min(since, o.Capacity))/2
	}
	return o.Value < since/2
}

// The age at which a reading no longer counts as an observation. Most readings are taken many times
// a second. A file system may hang, so it is read outside the loop, and its reader drops the value
// after MaxAge. maxFsAge is the bound for hangs that the reader does not notice.
const (
	MaxAge   = 10 * time.Second
	maxFsAge = time.Minute
)

// tooOld is the reason for a reading above its maximum age. The text is constant because an
// observation must not allocate.
const tooOld = "read too long ago"

// Observe computes one signal from a Summary. If a value is missing or too old, the signal is not
// observed, and Reason explains why. A reading without a time is never too old. With a zero now
// (recorded readings), no reading is too old.
func (s *Summary) Observe(now time.Time, signal Signal, by MemoryAvailable) Observation {
	n, most := &s.Node, MaxAge
	var o Observation
	switch signal {
	case SignalMemoryAvailable:
		if o = n.Memory.Available(by); !o.OK {
			o.Reason = n.Memory.missing()
		}
	case SignalAllocatableMemoryAvailable:
		a := n.Allocatable
		o = available(a.Time, a.LimitBytes, a.WorkingSetBytes,
			"the cgroup above all pods has no memory limit or does not exist")
		o.Gone = a.Unlimited
	case SignalSwapAvailable:
		o = n.Swap.available()
	case SignalPIDAvailable:
		o = n.PIDs.available()
	case SignalNodeFsAvailable:
		o, most = bytesOf(n.Fs), maxFsAge
	case SignalNodeFsInodesFree:
		o, most = inodesOf(n.Fs), maxFsAge
	case SignalImageFsAvailable:
		o, most = bytesOf(n.ImageFs), maxFsAge
	case SignalImageFsInodesFree:
		o, most = inodesOf(n.ImageFs), maxFsAge
	case SignalContainerFsAvailable:
		o, most = bytesOf(n.ContainerFs), maxFsAge
	case SignalContainerFsInodesFree:
		o, most = inodesOf(n.ContainerFs), maxFsAge
	default:
		return Observation{Reason: "unknown signal"}
	}
	return o.within(now, most)
}

// ObservePressure computes a pressure signal over one of the supported windows: from this process's
// own samples, else from the kernel's average, which is up to 2 s old. The age limit is the same as
// in Observe.
func (s *Summary) ObservePressure(now time.Time, signal Signal, window time.Duration) Observation {
	p := &s.Node.Pressure
	of, full := &p.Memory, signal == SignalMemoryPressureFull || signal == SignalIOPressureFull
	switch signal {
	case SignalIOPressureFull:
		of = &p.IO
	case SignalCPUPressureSome:
		of = &p.CPU
	}
	watched, kernel, has := &of.Some, &of.Stats.V.Some, of.Stats.OK && of.Stats.V.HasSome
	if full {
		watched, kernel, has = &of.Full, &of.Stats.V.Full, of.Stats.OK && of.Stats.V.HasFull
	}
	share := Opt[float64]{}
	switch {
	case window == time.Second:
		share = watched.Over1s
	case window == 10*time.Second && watched.Over10s.OK:
		share = watched.Over10s
	case window == 10*time.Second:
		share = Opt[float64]{V: kernel.Avg10 / 100, OK: has}
	case window == time.Minute:
		share = Opt[float64]{V: kernel.Avg60 / 100, OK: has}
	case window == 5*time.Minute:
		share = Opt[float64]{V: kernel.Avg300 / 100, OK: has}
	}
	if !share.OK || !(share.V >= 0 && share.V <= 1) { // rejects NaN too
		return Observation{Direction: Rising, Reason: "no pressure reading covers this window"}
	}
	o := Observation{Value: uint64(share.V * ShareUnit), Capacity: ShareUnit, Time: of.Time,
		Direction: Rising, OK: true}
	return o.within(now, MaxAge)
}

// within returns the observation, or an observation without a value if it is older than most.
func (o Observation) within(now time.Time, most time.Duration) Observation {
	switch {
	case !o.OK:
		return o
	case !now.IsZero() && !o.Time.IsZero() && now.Sub(o.Time) > most:
		return Observation{Direction: o.Direction, Reason: tooOld}
	}
	o.Reason = ""
	return o
}

// available returns the observation of the free swap.
func (s *NodeSwapStats) available() Observation {
	switch {
	case s.TotalBytes.OK && s.TotalBytes.V == 0:
		return Observation{Reason: "the node has no swap", Gone: true}
	case !s.TotalBytes.OK || !s.FreeBytes.OK:
		return Observation{Reason: "meminfo could not be read"}
	}
	return Observation{Value: s.FreeBytes.V, Capacity: s.TotalBytes.V, Time: s.Time, OK: true}
}

// missing names the sources of memory.available that could not be read.
func (m NodeMemoryStats) missing() string {
	switch {
	case !m.CapacityBytes.OK && !m.WorkingSetBytes.OK:
		return "neither meminfo nor the root's memory.stat could be read"
	case !m.CapacityBytes.OK:
		return "meminfo could not be read"
	case !m.WorkingSetBytes.OK:
		return "the root's memory.stat could not be read"
	}
	return "meminfo has no MemAvailable"
}

// available returns the amount that is left of a limit. reason is used if a value is absent.
func available(at time.Time, limit, used Opt[uint64], reason string) Observation {
	if !limit.OK || !used.OK {
		return Observation{Reason: reason}
	}
	return Observation{Value: limit.V - min(used.V, limit.V), Capacity: limit.V, Time: at, OK: true}
}

// noFs is the reason for a file system's signal without a reading from its source.
const noFs = "no reading from its source; see the source's error"

func bytesOf(fs Opt[FsStats]) Observation {
	switch {
	case !fs.OK:
		return Observation{Reason: noFs}
	case !fs.V.AvailableBytes.OK || !fs.V.CapacityBytes.OK:
		return Observation{Reason: "the file system reports no size"}
	}
	return Observation{Value: fs.V.AvailableBytes.V, Capacity: fs.V.CapacityBytes.V, Time: fs.V.Time,
		OK: true}
}

func inodesOf(fs Opt[FsStats]) Observation {
	switch {
	case !fs.OK:
		return Observation{Reason: noFs}
	case !fs.V.InodesFree.OK || !fs.V.Inodes.OK:
		return Observation{Reason: "the file system has no fixed number of inodes"}
	}
	return Observation{Value: fs.V.InodesFree.V, Capacity: fs.V.Inodes.V, Time: fs.V.Time, OK: true}
}

// Available computes memory.available. If "lower" lacks one of the two sources, it uses the other
// one. The capacity is without huge pages, as the kubelet's since v1.37 (pkg/kubelet/server/stats
// summary.go, gate HugepageAwareEviction).
func (m NodeMemoryStats) Available(by MemoryAvailable) Observation {
	capacity, workingSet := m.Ordinary(), m.WorkingSetBytes
	kubelet := Observation{Capacity: capacity.V, Time: m.Time, OK: capacity.OK && workingSet.OK}
	if kubelet.OK {
		kubelet.Value = capacity.V - min(workingSet.V, capacity.V)
	}
	kernel := Observation{
		Value: m.KernelAvailableBytes.V + m.PerCPUFreeBytes.V, Capacity: capacity.V, Time: m.Time,
		OK: capacity.OK && m.KernelAvailableBytes.OK,
	}
	if m.ShrinkableBytes.OK {
		kernel.Value = min(SaturatingAdd(kernel.Value, m.ShrinkableBytes.V), capacity.V)
	}
	switch {
	case by == MemoryAvailableWorkingSet || by == MemoryAvailableLower && !kernel.OK:
		return kubelet
	case by == MemoryAvailableKernel || by == MemoryAvailableLower && !kubelet.OK:
		return kernel
	case kernel.Value < kubelet.Value:
		return kernel
	}
	return kubelet
}
