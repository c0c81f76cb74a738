package stats

import (
	"fmt"
	"time"
)

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

// SignalSwapAvailable is this project's own.
const SignalSwapAvailable Signal = "swap.available"

// Signals are all that are observed as an amount available, in the order they are shown in.
var Signals = []Signal{
	SignalMemoryAvailable, SignalAllocatableMemoryAvailable, SignalSwapAvailable, SignalPIDAvailable,
	SignalNodeFsAvailable, SignalNodeFsInodesFree, SignalImageFsAvailable, SignalImageFsInodesFree,
	SignalContainerFsAvailable, SignalContainerFsInodesFree,
}

// MemoryAvailable says how memory.available is computed.
type MemoryAvailable string

// The ways. The kubelet's formula reads high exactly when the kernel itself is the consumer (slab, page tables, sockets);
// the kernel's estimate knows them.
const (
	MemoryAvailableWorkingSet MemoryAvailable = "workingSet" // capacity - working set: the kubelet's
	MemoryAvailableKernel     MemoryAvailable = "kernel"     // MemAvailable, and what is free on per-CPU lists
	MemoryAvailableLower      MemoryAvailable = "lower"      // the lower of both
)

// Observation is the state of one signal. The zero value: not observed.
type Observation struct {
	Available uint64 // in the signal's unit
	Capacity  uint64 // what percentages refer to
	Time      time.Time
	OK        bool
	Reason    string // why it is not observed
	// Gone: the node does not have what the signal is about, as its source says: nothing of it can be short.
	Gone bool
}

// MaxAge is the age at which a reading is no observation any more.
const MaxAge = 10 * time.Second

// Observe computes one signal from a Summary. What was not read, or too long ago, is not observed: the Reason says why.
func (s *Summary) Observe(now time.Time, signal Signal, by MemoryAvailable) Observation {
	n := &s.Node
	var o Observation
	switch signal {
	case SignalMemoryAvailable:
		if o = n.Memory.Available(by); !o.OK {
			o.Reason = n.Memory.missing()
		}
	case SignalAllocatableMemoryAvailable:
		a := n.Allocatable
		o = available(a.Time, a.LimitBytes, a.WorkingSetBytes, "the cgroup above all pods has no memory limit, or is not there")
		o.Gone = a.Unlimited
	case SignalSwapAvailable:
		if n.Swap.TotalBytes.OK && n.Swap.TotalBytes.V == 0 {
			return Observation{Reason: "the node has no swap", Gone: true}
		}
		o = Observation{Available: n.Swap.FreeBytes.V, Capacity: n.Swap.TotalBytes.V, Time: n.Swap.Time, OK: n.Swap.TotalBytes.OK && n.Swap.FreeBytes.OK, Reason: "meminfo could not be read"}
	case SignalPIDAvailable:
		o = available(n.PIDs.Time, n.PIDs.Max, n.PIDs.Current, "loadavg, pid_max or threads-max could not be read")
	case SignalNodeFsAvailable:
		o = bytesOf(n.Fs)
	case SignalNodeFsInodesFree:
		o = inodesOf(n.Fs)
	case SignalImageFsAvailable:
		o = bytesOf(n.ImageFs)
	case SignalImageFsInodesFree:
		o = inodesOf(n.ImageFs)
	case SignalContainerFsAvailable:
		o = bytesOf(n.ContainerFs)
	case SignalContainerFsInodesFree:
		o = inodesOf(n.ContainerFs)
	default:
		return Observation{Reason: "unknown signal"}
	}
	if age := now.Sub(o.Time); o.OK && age > MaxAge {
		return Observation{Reason: fmt.Sprintf("read %v ago, which is too long", age.Round(time.Second))}
	}
	if o.OK {
		o.Reason = ""
	}
	return o
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
	return Observation{Available: limit.V - min(used.V, limit.V), Capacity: limit.V, Time: at, OK: true}
}

// noFs is why a file system's signal is absent where its source says nothing.
const noFs = "no answer from its source, see there"

func bytesOf(fs Opt[FsStats]) Observation {
	if !fs.OK || !fs.V.AvailableBytes.OK || !fs.V.CapacityBytes.OK {
		return Observation{Reason: noFs}
	}
	return Observation{Available: fs.V.AvailableBytes.V, Capacity: fs.V.CapacityBytes.V, Time: fs.V.Time, OK: true}
}

func inodesOf(fs Opt[FsStats]) Observation {
	switch {
	case !fs.OK:
		return Observation{Reason: noFs}
	case !fs.V.InodesFree.OK || !fs.V.Inodes.OK:
		return Observation{Reason: "the file system has no fixed number of inodes"}
	}
	return Observation{Available: fs.V.InodesFree.V, Capacity: fs.V.Inodes.V, Time: fs.V.Time, OK: true}
}

// Available computes memory.available. If one of two sources of "lower" is absent, the other one counts.
func (m NodeMemoryStats) Available(by MemoryAvailable) Observation {
	capacity, workingSet := m.CapacityBytes, m.WorkingSetBytes
	kubelet := Observation{Capacity: capacity.V, Time: m.Time, OK: capacity.OK && workingSet.OK}
	if kubelet.OK {
		kubelet.Available = capacity.V - min(workingSet.V, capacity.V)
	}
	kernel := Observation{Available: m.KernelAvailableBytes.V + m.PerCPUFreeBytes.V, Capacity: capacity.V, Time: m.Time, OK: capacity.OK && m.KernelAvailableBytes.OK}
	switch {
	case by == MemoryAvailableWorkingSet || by == MemoryAvailableLower && !kernel.OK:
		return kubelet
	case by == MemoryAvailableKernel || by == MemoryAvailableLower && !kubelet.OK:
		return kernel
	case kernel.Available < kubelet.Available:
		return kernel
	}
	return kubelet
}
