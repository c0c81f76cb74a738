package eviction

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

// Signals of evictions for a pod's own limits; they cannot have a threshold
// (pkg/kubelet/eviction/eviction_manager.go).
const (
	SignalEmptyDirFsLimit           stats.Signal = "emptydirfs.limit"
	SignalEphemeralPodFsLimit       stats.Signal = "ephemeralpodfs.limit"
	SignalEphemeralContainerFsLimit stats.Signal = "ephemeralcontainerfs.limit"
)

// kind is the kind of resource that is short. Pods are ranked by their usage of the resource, and
// an eviction returns some of it.
type kind int

const (
	kindMemory kind = iota
	kindSwap
	kindPID
	kindBytes
	kindInodes
	kindRoom // requests of pods, not their usage: it has no threshold
	kindMemoryPressure
	kindIOPressure
	kindCPUPressure
	kinds // the number of kinds
)

// fileSystem is the file system of a disk signal.
type fileSystem int

const (
	noFs fileSystem = iota
	nodeFs
	imageFs
	containerFs
)

// signalInfo holds the constant properties of a signal.
type signalInfo struct {
	order     int // among equally urgent thresholds: memory first
	kind      kind
	fs        fileSystem
	resource  v1.ResourceName // in messages (pkg/kubelet/eviction/helpers.go signalToResource)
	condition Condition
	own       bool // specific to jettison: a kubelet rejects the signal
}

var signals = map[stats.Signal]signalInfo{
	stats.SignalMemoryAvailable: {0, kindMemory, noFs, v1.ResourceMemory, MemoryPressure,
		false},
	stats.SignalAllocatableMemoryAvailable: {1, kindMemory, noFs, v1.ResourceMemory, MemoryPressure,
		false},
	stats.SignalSwapAvailable: {2, kindSwap, noFs, "swap", MemoryPressure, true},
	stats.SignalPIDAvailable:  {3, kindPID, noFs, "pids", PIDPressure, false},
	stats.SignalNodeFsAvailable: {4, kindBytes, nodeFs, v1.ResourceEphemeralStorage,
		DiskPressure, false},
	stats.SignalNodeFsInodesFree: {5, kindInodes, nodeFs, "inodes", DiskPressure, false},
	stats.SignalImageFsAvailable: {6, kindBytes, imageFs, v1.ResourceEphemeralStorage,
		DiskPressure, false},
	stats.SignalImageFsInodesFree: {7, kindInodes, imageFs, "inodes", DiskPressure, false},
	stats.SignalContainerFsAvailable: {8, kindBytes, containerFs, v1.ResourceEphemeralStorage,
		DiskPressure, false},
	stats.SignalContainerFsInodesFree: {9, kindInodes, containerFs, "inodes", DiskPressure,
		false},
	stats.SignalMemoryPressureFull: {10, kindMemoryPressure, noFs, v1.ResourceMemory,
		MemoryPressure, true},
	stats.SignalMemoryPressureSome: {11, kindMemoryPressure, noFs, v1.ResourceMemory,
		MemoryPressure, true},
	stats.SignalIOPressureFull: {12, kindIOPressure, noFs, "io", IOPressure, true},
	stats.SignalCPUPressureSome: {13, kindCPUPressure, noFs, v1.ResourceCPU, CPUPressure,
		true},
}

// pressure reports whether the signal is a share of time stalled. Such a signal shows which pods
// suffer, so a victim must have caused the pressure, and its returns are not counted in the
// signal's unit.
func (k kind) pressure() bool { return k >= kindMemoryPressure }

// memoryView reports whether a look at the memory and tasks of pods is enough to find a victim.
func (k kind) memoryView() bool { return k == kindMemory || k == kindPID }

// disk reports whether files use up the resource.
func (k kind) disk() bool { return k == kindBytes || k == kindInodes }

// implausible is more than any node has. A counter above it is broken, or was negative.
const implausible = math.MaxInt64

// broken reports whether a known value is implausible.
func broken(o stats.Opt[uint64]) bool { return o.OK && o.V > implausible }

func brokenMemory(n *stats.NodeStats) bool {
	m := &n.Memory
	return broken(m.CapacityBytes) || broken(m.WorkingSetBytes) || broken(m.KernelAvailableBytes) ||
		broken(m.PerCPUFreeBytes) || broken(m.HugePagesBytes) || broken(m.ShrinkableBytes)
}

// brokenFor reports whether a value that a threshold's signal is computed from is broken.
func brokenFor(n *stats.NodeStats, w *watched) bool {
	switch w.info.kind {
	case kindMemory:
		return brokenMemory(n) || w.Signal == stats.SignalAllocatableMemoryAvailable &&
			broken(n.Allocatable.WorkingSetBytes)
	case kindPID:
		return broken(n.PIDs.Current) || broken(n.PIDs.PodsCurrent)
	}
	return false
}
