package eviction

import (
	"jettison/stats"
)

// measure fills in what a candidate uses of what the threshold is short of, and its request for it. cause is what it did to a
// pressure signal.
func (m *Manager) measure(c *Candidate, w *watched) {
	k, pod := &c.Keys, c.Pod
	k.kind = w.info.kind
	var use stats.Opt[uint64]
	switch w.info.kind {
	case kindMemory, kindMemoryPressure:
		use = pod.Memory.WorkingSetBytes
		k.Requests = true
		k.Request = m.config.Policy.memoryRequest(c)
		k.Refused = pod.StatusRefused && !k.Request.OK
	case kindSwap:
		use = pod.Memory.SwapBytes
	case kindPID:
		if use = pod.Threads; !use.OK {
			use = pod.Processes
		}
	case kindBytes, kindInodes:
		use = m.diskUse(c, w)
		if u := unnamed(c, w); u.OK {
			k.Unnamed = inUnit(&u.V, w)
		}
		k.AtLeast = atLeast(c, w)
		k.Requests = true
		switch {
		case w.info.kind == kindInodes: // they cannot be requested, so a pod that has any is over
			k.Request = stats.Some(stats.Range{})
		case c.Object != nil:
			k.Request = stats.Some(stats.Exactly(c.Object.storageRequest))
		}
	case kindIOPressure, kindCPUPressure:
		use = m.caused(w, pod)
	}
	k.Usage, k.Measured = use.V, use.OK && use.V <= implausible
	if r := k.Request.V; r.Max > implausible || r.Min > r.Max {
		k.Request = stats.Opt[stats.Range]{}
	}
	if m.config.Policy.ByRelease {
		k.Release = release(c, w, *k)
	}
}

// openAbove: a request may be as much as the node has memory, for the runtime did not tell all of the pod
// (stats/read/podindex, request.go). A pod that requests more would not have been admitted.
func openAbove(k *Keys, capacity stats.Opt[uint64]) bool {
	memory := k.kind == kindMemory || k.kind == kindMemoryPressure
	return memory && k.Request.OK && capacity.OK && k.Request.V.Max >= capacity.V
}

// release is what killing a pod would return for sure, in the threshold's unit.
func release(c *Candidate, w *watched, k Keys) stats.Opt[uint64] {
	if w.info.kind != kindMemory && w.info.kind != kindMemoryPressure {
		return stats.Opt[uint64]{V: k.Usage, OK: k.Measured}
	}
	return memoryReleased(&c.Pod.Memory)
}

// memoryReleased is the same of a pod's memory.
func memoryReleased(mem *stats.PodMemoryStats) stats.Opt[uint64] {
	switch {
	case mem.FreedBytes.OK:
		return stats.Some(mem.FreedBytes.V.Min)
	case mem.AnonBytes.OK:
		return mem.AnonBytes
	}
	return mem.WorkingSetBytes
}

// expected is what the end of a pod is expected to return of an amount: of a pressure signal's memory that is bytes. What a pod reads,
// writes or computes in a second is no amount that comes back.
func expected(c *Candidate, w *watched) stats.Opt[uint64] {
	if w.info.kind == kindIOPressure || w.info.kind == kindCPUPressure {
		return stats.Opt[uint64]{}
	}
	return release(c, w, c.Keys)
}

// eases reports whether an eviction returns what is short. Disks count as one: mostly they are.
func (e *Eviction) eases(k kind) bool {
	return k.disk() && (e.Local() || e.kind.disk()) || e.kind == k && !e.Local()
}

// diskUsage is what a pod takes of the file system that the threshold is for, by the layout (pkg/kubelet/eviction/helpers.go
// buildSignalToRankFunc):
//
//	layout            nodefs                  imagefs           containerfs
//	one               layers, logs, volumes   the same          the same
//	dedicated imagefs logs, volumes           layers            layers
//	split             layers, logs, volumes   nothing           as nodefs
//
// Absent: no part of it was measured; where nothing counts, no part at all.
func (m *Manager) diskUsage(c *Candidate, w *watched) (total stats.Opt[uint64]) {
	nothing := m.layout.V.DedicatedImageFs && m.layout.V.SplitContainerFs && w.info.fs == imageFs
	m.eachPart(c, w, func(u *stats.FsUsage) {
		v := u.UsedBytes
		if w.info.kind == kindInodes {
			v = u.InodesUsed
		}
		if nothing {
			v = 0
		}
		total = stats.Some(add(total.V, v))
	})
	return total
}

// eachPart goes through the parts of a pod that were measured and lie on the file system that the threshold is for; where nothing counts,
// through all.
func (m *Manager) eachPart(c *Candidate, w *watched, visit func(u *stats.FsUsage)) {
	apart := m.layout.V.DedicatedImageFs && !m.layout.V.SplitContainerFs
	layers, files := !apart || w.info.fs != nodeFs, !apart || w.info.fs == nodeFs
	s := &c.Pod.EphemeralStorage
	if files && s.Logs.OK {
		visit(&s.Logs.V)
	}
	if files && s.Files.OK {
		visit(&s.Files.V)
	}
	if layers && s.ExitedLayers.OK {
		visit(&s.ExitedLayers.V)
	}
	for i := range c.Pod.Containers {
		container := &c.Pod.Containers[i]
		if layers && container.Rootfs.OK {
			visit(&container.Rootfs.V)
		}
		if files && !s.Logs.OK && container.Logs.OK {
			visit(&container.Logs.V)
		}
	}
	for i := range s.Volumes {
		if v := &s.Volumes[i]; files && m.countsAsDisk(v, c.Object) {
			visit(&v.FsUsage)
		}
	}
}

// countsAsDisk: a volume in memory takes no disk. Of the others all count, for only local volumes are measured; in a foreign Summary those
// do that the object calls local, if there is one.
func (m *Manager) countsAsDisk(v *stats.VolumeStats, object *Pod) bool {
	if v.Memory {
		return false
	}
	if object == nil || !m.foreign {
		return true
	}
	_, ok := object.localVolumes[v.Name]
	return ok
}
