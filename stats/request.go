package stats

// MemoryRequest is a memory request in bytes: at least Min, at most Max. They are equal where the source is exact.
type MemoryRequest struct{ Min, Max uint64 }

// add sums two requests, bound by bound.
func (r MemoryRequest) add(o MemoryRequest) MemoryRequest {
	return MemoryRequest{Min: r.Min + o.Min, Max: r.Max + o.Max}
}

// The kubelet's oom_score_adj values (pkg/kubelet/qos/policy.go, v1.36).
const (
	oomScoreAdjGuaranteed   = -997 // and system-node-critical pods
	oomScoreAdjBurstableMin = 3
	oomScoreAdjBurstableMax = 999
	oomScoreAdjBestEffort   = 1000
)

// requestFromOOMScoreAdj inverts the kubelet's formula for a Burstable container, adj = 1000 - 1000*request/capacity in
// integers, clamped to 3..999. The result is as wide as a thousandth of the capacity; at the clamps it is wider.
func requestFromOOMScoreAdj(adj int64, capacity uint64) MemoryRequest {
	share := func(thousandths int64) uint64 { // ceil(capacity * thousandths / 1000)
		return (capacity/1000)*uint64(thousandths) + ((capacity%1000)*uint64(thousandths)+999)/1000
	}
	r := MemoryRequest{Min: share(1000 - adj), Max: share(1001 - adj)}
	if r.Max > 0 {
		r.Max-- // the interval is half open
	}
	if adj >= oomScoreAdjBurstableMax {
		r.Min = 0
	}
	if adj <= oomScoreAdjBurstableMin {
		r.Max = max(r.Max, capacity)
	}
	return r
}

// containerRequest is the memory request of one container as far as it can be known from the CRI.
func containerRequest(qos QOSClass, adj *int64, limit *uint64, capacity Opt[uint64]) Opt[MemoryRequest] {
	switch {
	case qos == BestEffort || adj != nil && *adj == oomScoreAdjBestEffort:
		return Some(MemoryRequest{})
	case qos == Guaranteed && limit != nil:
		return Some(MemoryRequest{Min: *limit, Max: *limit})
	case qos == Burstable && adj != nil && *adj >= oomScoreAdjBurstableMin && *adj <= oomScoreAdjBurstableMax && capacity.OK:
		return Some(requestFromOOMScoreAdj(*adj, capacity.V))
	}
	return Opt[MemoryRequest]{}
}
