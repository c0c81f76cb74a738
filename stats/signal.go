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
