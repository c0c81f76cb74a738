package eviction

import "jettison/stats"

// measure sets a candidate's usage of a threshold's resource, and its request for that resource.
// memory is the node's, and cause the candidate's part in a pressure.
func (p *Policy) measure(c *Candidate, w *watched, d *fileSystems, memory,
	cause stats.Opt[uint64]) {
	k, pod := &c.Keys, c.Pod
	k.kind = w.info.kind
	var use stats.Opt[uint64]
	switch w.info.kind {
	case kindMemory, kindMemoryPressure:
		use = pod.Memory.WorkingSetBytes
		k.Requests = true
		k.Request = p.memoryRequest(c, memory)
		k.Refused = pod.StatusRefused && !k.Request.OK
	case kindSwap:
		use = pod.Memory.SwapBytes
	case kindPID:
		if use = pod.Threads; !use.OK {
			use = pod.Processes
		}
	case kindBytes, kindInodes:
		use = d.usage(c, w)
		if u := unnamed(c, w); u.OK {
			k.Unnamed = inUnit(&u.V, w)
		}
		k.AtLeast = atLeast(c, w)
		k.Requests = true
		switch {
		// inodes cannot be requested, so a pod with any inode is over its request
		case w.info.kind == kindInodes:
			k.Request = stats.Some(stats.Range{})
		case c.Object != nil:
			k.Request = stats.Some(boundedRequest(c.Object.storageRequest, stats.Opt[stats.Range]{},
				storageCapacity(w)))
		}
	case kindIOPressure, kindCPUPressure:
		use = cause
	}
	k.Usage, k.Measured = use.V, use.OK && use.V <= implausible
	if r := k.Request.V; r.Max > implausible || r.Min > r.Max {
		k.Request = stats.Opt[stats.Range]{}
	}
	if p.ByRelease {
		k.Release = release(c, w, *k)
	}
}

// storageCapacity returns the ephemeral storage of the node, which is nodefs, if that is the
// threshold's file system. A request may exceed the capacity of imagefs.
func storageCapacity(w *watched) stats.Opt[uint64] {
	o := &w.observed
	return stats.Opt[uint64]{V: o.Capacity, OK: o.OK && o.Capacity > 0 && w.info.fs == nodeFs}
}

// release returns the amount that killing a pod certainly returns, in the threshold's unit.
func release(c *Candidate, w *watched, k Keys) stats.Opt[uint64] {
	if w.info.kind != kindMemory && w.info.kind != kindMemoryPressure {
		return stats.Opt[uint64]{V: k.Usage, OK: k.Measured}
	}
	return memoryReleased(&c.Pod.Memory)
}

// memoryReleased returns the memory that killing a pod certainly returns, in bytes.
func memoryReleased(mem *stats.PodMemoryStats) stats.Opt[uint64] {
	switch {
	case mem.FreedBytes.OK:
		return stats.Some(mem.FreedBytes.V.Min)
	case mem.AnonBytes.OK:
		return mem.AnonBytes
	}
	return mem.WorkingSetBytes
}

// expected returns the amount that a pod's end is expected to return, in the threshold's unit, or
// in bytes for memory pressure. It is absent for I/O and CPU pressure.
func expected(c *Candidate, w *watched) stats.Opt[uint64] {
	if w.info.kind == kindIOPressure || w.info.kind == kindCPUPressure {
		return stats.Opt[uint64]{}
	}
	return release(c, w, c.Keys)
}

// returnsKind reports whether an eviction returns the resource k. All disks count as the same
// resource, because they usually are one disk.
func (e *Eviction) returnsKind(k kind) bool {
	return k.disk() && (e.Local() || e.kind.disk()) || e.kind == k && !e.Local()
}

// openAbove reports whether the runtime does not confirm the upper bound of a request: the bound is
// the node's memory, because the runtime did not report all of the pod (stats/read/podindex,
// request.go) and a pod with a larger request would not have been admitted, or it is the claim of an
// object.
func openAbove(c *Candidate, capacity stats.Opt[uint64]) bool {
	k := &c.Keys
	if k.kind != kindMemory && k.kind != kindMemoryPressure || !k.Request.OK {
		return false
	}
	return capacity.OK && k.Request.V.Max >= capacity.V ||
		c.Object != nil && c.Object.ExceedsRuntime(c.Pod)
}
