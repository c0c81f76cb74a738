package eviction

import "jettison/stats"

// measure fills in what a candidate uses of what the threshold is short of, and its request for it.
// cause is what it did to a pressure signal.
func (p *Policy) measure(c *Candidate, w *watched, d *fileSystems, cause stats.Opt[uint64]) {
	k, pod := &c.Keys, c.Pod
	k.kind = w.info.kind
	var use stats.Opt[uint64]
	switch w.info.kind {
	case kindMemory, kindMemoryPressure:
		use = pod.Memory.WorkingSetBytes
		k.Requests = true
		k.Request = p.memoryRequest(c)
		k.Refused = pod.StatusRefused && !k.Request.OK
	case kindSwap:
		use = pod.Memory.SwapBytes
	case kindPID:
		if use = pod.Threads; !use.OK {
			use = pod.Processes
		}
	case kindBytes, kindInodes:
		use = d.use(c, w)
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

// expected is what the end of a pod is expected to return of an amount: of a pressure signal's
// memory that is bytes. What a pod reads, writes or computes in a second is no amount that comes
// back.
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

// openAbove: a request may be as much as the node has memory, for the runtime did not tell all of
// the pod (stats/read/podindex, request.go). A pod that requests more would not have been admitted.
func openAbove(k *Keys, capacity stats.Opt[uint64]) bool {
	memory := k.kind == kindMemory || k.kind == kindMemoryPressure
	return memory && k.Request.OK && capacity.OK && k.Request.V.Max >= capacity.V
}
