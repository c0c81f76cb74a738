package stats

import "time"

// Signal names what a threshold is set for (kubelet pkg/kubelet/eviction/api/types.go).
type Signal string

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

// Signals of this project's own. Of a pressure it is the share of time in which tasks stalled
// (PSI).
const (
	SignalSwapAvailable      Signal = "swap.available"
	SignalMemoryPressureFull Signal = "memory.pressure.full"
	SignalMemoryPressureSome Signal = "memory.pressure.some"
	SignalIOPressureFull     Signal = "io.pressure.full"
	SignalCPUPressureSome    Signal = "cpu.pressure.some"
)

// Signals are all that are observed as an amount available, in the order they are shown in.
var Signals = []Signal{
	SignalMemoryAvailable, SignalAllocatableMemoryAvailable, SignalSwapAvailable, SignalPIDAvailable,
	SignalNodeFsAvailable, SignalNodeFsInodesFree, SignalImageFsAvailable, SignalImageFsInodesFree,
	SignalContainerFsAvailable, SignalContainerFsInodesFree,
}

// MemoryAvailable says how memory.available is computed.
type MemoryAvailable string

// The ways. The kubelet's formula reads high exactly when the kernel itself is the consumer (slab,
// page tables, sockets); the kernel's estimate knows them.
const (
	MemoryAvailableWorkingSet MemoryAvailable = "workingSet" // capacity - working set: the kubelet's
	// MemAvailable, and what is free on per-CPU lists
	MemoryAvailableKernel MemoryAvailable = "kernel"
	MemoryAvailableLower  MemoryAvailable = "lower" // the lower of both
)

// Direction says on which side of a limit a signal is short.
type Direction bool

// The directions.
const (
	Falling Direction = false // less is worse: an amount that is available
	Rising  Direction = true  // more is worse: a share of time stalled
)

// ShareUnit is a whole share of time: an Observation counts millionths of it.
const ShareUnit = 1_000_000

// Observation is the state of one signal. The zero value: not observed.
type Observation struct {
	Value     uint64 // in the signal's unit: what is available, or the share of time stalled
	Capacity  uint64 // what percentages refer to
	Time      time.Time
	Direction Direction
	OK        bool
	// Gone: the node does not have what the signal is about, as its source says: nothing of it can be
	// short.
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

// Better reports whether more is left than at another value.
func (o Observation) Better(than uint64) bool {
	if o.Direction == Rising {
		return o.Value < than
	}
	return o.Value > than
}

// Near reports whether less than so many times a limit is left; of a rising signal, whether it is
// beyond that fraction of it.
func (o Observation) Near(limit, times uint64) bool {
	if o.Direction == Rising {
		return o.Value > limit/times
	}
	return o.Value/times < limit
}

// Left is how far the signal may go until it is at a limit; 0: it is beyond.
func (o Observation) Left(limit uint64) uint64 {
	if o.Direction == Rising {
		return limit - min(o.Value, limit)
	}
	return o.Value - min(o.Value, limit)
}

// HalfGone reports whether less than half of what was left at another value is left.
func (o Observation) HalfGone(since uint64) bool {
	if o.Direction == Rising {
		return o.Capacity-min(o.Value, o.Capacity) < (o.Capacity-min(since, o.Capacity))/2
	}
	return o.Value < since/2
}

// The age at which a reading is no observation any more. What the kernel answers at once is read
// many times a second. A file system may hang, so each is asked beside the loop, and its reader
// calls it lost by MaxAge: maxFsAge is the bound for what that does not see.
const (
	MaxAge   = 10 * time.Second
	maxFsAge = time.Minute
)

// tooOld is a reading beyond that age. The text is fixed, for an observation allocates nothing.
const tooOld = "read too long ago"

// Observe computes one signal from a Summary. What was not read, or too long ago, is not observed:
// the Reason says why. This is the only place that judges an age: a reading without a time has
// none, and at a zero now, as for readings that were recorded, none is too old.
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
			"the cgroup above all pods has no memory limit, or is not there")
		o.Gone = a.Unlimited
	case SignalSwapAvailable:
		o = n.Swap.available()
	case SignalPIDAvailable:
		o = available(n.PIDs.Time, n.PIDs.Max, n.PIDs.Current,
			"loadavg, pid_max or threads-max could not be read")
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

// ObservePressure computes a signal of pressure over one of the windows that there are: as this
// process watched it, else the kernel's average, which is up to 2 s old. Its age is judged as
// Observe does it.
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
	if !share.OK || !(share.V >= 0 && share.V <= 1) { // NaN is no share either
		return Observation{Direction: Rising, Reason: "no pressure was read over that window"}
	}
	o := Observation{Value: uint64(share.V * ShareUnit), Capacity: ShareUnit, Time: of.Time,
		Direction: Rising, OK: true}
	return o.within(now, MaxAge)
}

// within is the observation, unless it is older than that.
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

// available is what is left of the swap.
func (s *NodeSwapStats) available() Observation {
	switch {
	case s.TotalBytes.OK && s.TotalBytes.V == 0:
		return Observation{Reason: "the node has no swap", Gone: true}
	case !s.TotalBytes.OK || !s.FreeBytes.OK:
		return Observation{Reason: "meminfo could not be read"}
	}
	return Observation{Value: s.FreeBytes.V, Capacity: s.TotalBytes.V, Time: s.Time, OK: true}
}

// missing says which of the sources of memory.available could not be read.
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

// available is what is left of a limit.
func available(at time.Time, limit, used Opt[uint64], otherwise string) Observation {
	if !limit.OK || !used.OK {
		return Observation{Reason: otherwise}
	}
	return Observation{Value: limit.V - min(used.V, limit.V), Capacity: limit.V, Time: at, OK: true}
}

// noFs is why a file system's signal is absent where its source says nothing.
const noFs = "no answer from its source, see there"

func bytesOf(fs Opt[FsStats]) Observation {
	if !fs.OK || !fs.V.AvailableBytes.OK || !fs.V.CapacityBytes.OK {
		return Observation{Reason: noFs}
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

// Available computes memory.available. If one of two sources of "lower" is absent, the other one
// counts.
func (m NodeMemoryStats) Available(by MemoryAvailable) Observation {
	capacity, workingSet := m.CapacityBytes, m.WorkingSetBytes
	kubelet := Observation{Capacity: capacity.V, Time: m.Time, OK: capacity.OK && workingSet.OK}
	if kubelet.OK {
		kubelet.Value = capacity.V - min(workingSet.V, capacity.V)
	}
	kernel := Observation{
		Value: m.KernelAvailableBytes.V + m.PerCPUFreeBytes.V, Capacity: capacity.V, Time: m.Time,
		OK: capacity.OK && m.KernelAvailableBytes.OK,
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
