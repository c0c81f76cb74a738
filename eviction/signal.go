package eviction

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

// Pressure signals are this project's own: the share of time in which tasks stalled (PSI), met when it is above the
// threshold. They are off unless configured.
const (
	SignalMemoryPressureFull stats.Signal = "memory.pressure.full"
	SignalMemoryPressureSome stats.Signal = "memory.pressure.some"
	SignalIOPressureFull     stats.Signal = "io.pressure.full"
	SignalCPUPressureSome    stats.Signal = "cpu.pressure.some"
)

// Signals of evictions for a pod's own limits; no threshold can be set for them (pkg/kubelet/eviction/eviction_manager.go).
const (
	SignalEmptyDirFsLimit           stats.Signal = "emptydirfs.limit"
	SignalEphemeralPodFsLimit       stats.Signal = "ephemeralpodfs.limit"
	SignalEphemeralContainerFsLimit stats.Signal = "ephemeralcontainerfs.limit"
)

// kind is what is short: pods are compared by what they use of it, and an eviction returns some of it.
type kind int

const (
	kindMemory kind = iota
	kindSwap
	kindPID
	kindBytes
	kindInodes
	kindMemoryPressure
	kindIOPressure
	kindCPUPressure
	kinds // how many there are
)

// fileSystem is the one that a disk signal speaks of.
type fileSystem int

const (
	noFs fileSystem = iota
	nodeFs
	imageFs
	containerFs
)

// signalInfo is what is fixed about a signal.
type signalInfo struct {
	order     int // among thresholds that are equally urgent: memory first
	kind      kind
	fs        fileSystem
	resource  v1.ResourceName // in messages (pkg/kubelet/eviction/helpers.go signalToResource)
	condition Condition
	own       bool // this project's: a kubelet refuses it
}

var signals = map[stats.Signal]signalInfo{
	stats.SignalMemoryAvailable:            {0, kindMemory, noFs, v1.ResourceMemory, MemoryPressure, false},
	stats.SignalAllocatableMemoryAvailable: {1, kindMemory, noFs, v1.ResourceMemory, MemoryPressure, false},
	stats.SignalSwapAvailable:              {2, kindSwap, noFs, "swap", MemoryPressure, true},
	stats.SignalPIDAvailable:               {3, kindPID, noFs, "pids", PIDPressure, false},
	stats.SignalNodeFsAvailable:            {4, kindBytes, nodeFs, v1.ResourceEphemeralStorage, DiskPressure, false},
	stats.SignalNodeFsInodesFree:           {5, kindInodes, nodeFs, "inodes", DiskPressure, false},
	stats.SignalImageFsAvailable:           {6, kindBytes, imageFs, v1.ResourceEphemeralStorage, DiskPressure, false},
	stats.SignalImageFsInodesFree:          {7, kindInodes, imageFs, "inodes", DiskPressure, false},
	stats.SignalContainerFsAvailable:       {8, kindBytes, containerFs, v1.ResourceEphemeralStorage, DiskPressure, false},
	stats.SignalContainerFsInodesFree:      {9, kindInodes, containerFs, "inodes", DiskPressure, false},
	SignalMemoryPressureFull:               {10, kindMemoryPressure, noFs, v1.ResourceMemory, MemoryPressure, true},
	SignalMemoryPressureSome:               {11, kindMemoryPressure, noFs, v1.ResourceMemory, MemoryPressure, true},
	SignalIOPressureFull:                   {12, kindIOPressure, noFs, "io", IOPressure, true},
	SignalCPUPressureSome:                  {13, kindCPUPressure, noFs, v1.ResourceCPU, CPUPressure, true},
}

// pressure reports whether the signal is a share of time stalled, which is met when above.
func (k kind) pressure() bool { return k >= kindMemoryPressure }

// memoryView reports whether a look at the memory and tasks of pods is enough to find a victim.
func (k kind) memoryView() bool { return k == kindMemory || k == kindPID }

// disk reports whether files take what is short.
func (k kind) disk() bool { return k == kindBytes || k == kindInodes }

// shareUnit is the unit of an observed share of time: its Observation counts millionths.
const shareUnit = 1_000_000

// implausible is more than any node has; a counter that says so is broken, or was negative.
const implausible = math.MaxInt64

// observe is the state of a threshold's signal. A reading that cannot be true is none: a broken source must not cost a
// pod its life.
func (m *Manager) observe(now time.Time, s *stats.Summary, w *watched) stats.Observation {
	if w.info.kind.pressure() {
		return observePressure(&s.Node.Pressure, w.Signal, w.Window)
	}
	n := &s.Node
	broken := func(o stats.Opt[uint64]) bool { return o.OK && o.V > implausible }
	switch w.info.kind {
	case kindMemory:
		if broken(n.Memory.CapacityBytes) || broken(n.Memory.WorkingSetBytes) || broken(n.Memory.KernelAvailableBytes) ||
			broken(n.Memory.PerCPUFreeBytes) || w.Signal == stats.SignalAllocatableMemoryAvailable && broken(n.Allocatable.WorkingSetBytes) {
			return stats.Observation{Reason: "a number that cannot be true"}
		}
	case kindPID:
		if broken(n.PIDs.Current) {
			return stats.Observation{Reason: "a number that cannot be true"}
		}
	}
	o := s.Observe(time.Time{}, w.Signal, m.config.MemoryAvailable) // at that time no reading is too old
	switch {
	case o.OK && (o.Capacity == 0 || o.Capacity > implausible || o.Available > implausible):
		return stats.Observation{Reason: "a number that cannot be true"}
	case o.OK && m.config.MaxAge > 0 && !o.Time.IsZero() && !w.info.kind.disk() && now.Sub(o.Time) > m.config.MaxAge:
		return stats.Observation{Reason: "read too long ago"}
	}
	return o
}

// observePressure is the share of time stalled over a window: as this process watched it, else the kernel's average, which is up
// to 2 s old.
func observePressure(p *stats.NodePressure, signal stats.Signal, window time.Duration) stats.Observation {
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
	share := stats.Opt[float64]{}
	switch {
	case window == time.Second:
		share = watched.Over1s
	case window == 10*time.Second && watched.Over10s.OK:
		share = watched.Over10s
	case window == 10*time.Second:
		share = stats.Opt[float64]{V: kernel.Avg10 / 100, OK: has}
	case window == time.Minute:
		share = stats.Opt[float64]{V: kernel.Avg60 / 100, OK: has}
	case window == 5*time.Minute:
		share = stats.Opt[float64]{V: kernel.Avg300 / 100, OK: has}
	}
	if !share.OK || !(share.V >= 0 && share.V <= 1) { // NaN is no share either
		return stats.Observation{Reason: "no pressure was read over that window"}
	}
	return stats.Observation{Available: uint64(share.V * shareUnit), Capacity: shareUnit, Time: of.Time, OK: true}
}
