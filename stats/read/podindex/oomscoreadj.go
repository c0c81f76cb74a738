package podindex

import (
	"jettison/cgroup"
	"jettison/cri"
	"jettison/stats"
)

// The kubelet's oom_score_adj values (pkg/kubelet/qos/policy.go, v1.37).
const (
	OOMScoreAdjGuaranteed   = -997 // also of system-node-critical pods
	oomScoreAdjBurstableMin = 3
	oomScoreAdjBurstableMax = 999
	oomScoreAdjBestEffort   = 1000
)

// requestFromOOMScoreAdj inverts the kubelet's formula for a Burstable container, adj = 1000 -
// 1000*request/capacity in integers, clamped to 3..999. The range spans a thousandth of the
// capacity, and more at the two limits.
func requestFromOOMScoreAdj(adj int64, capacity uint64) stats.Range {
	share := func(thousandths int64) uint64 { // ceil(capacity * thousandths / 1000)
		return (capacity/1000)*uint64(thousandths) + ((capacity%1000)*uint64(thousandths)+999)/1000
	}
	r := stats.Range{Min: share(1000 - adj), Max: share(1001 - adj)}
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

// containerRequest returns bounds of the memory request of one container, from the data of the CRI.
// A kubelet with MemoryQoS and tiered reservation writes the exact request to the cgroup settings
// (pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, v1.37).
func containerRequest(qos stats.QOSClass, c *cri.Container,
	capacity stats.Opt[uint64]) stats.Opt[stats.Range] {
	for _, key := range []string{"memory.min", "memory.low"} {
		if v, ok := cgroup.Decimal([]byte(c.Unified[key])); ok && v > 0 && qos != stats.BestEffort {
			return stats.Some(stats.ExactRange(v))
		}
	}
	adj, limit := c.OOMScoreAdj, c.MemoryLimit
	switch {
	case qos == stats.BestEffort || adj != nil && *adj == oomScoreAdjBestEffort:
		return stats.Some(stats.Range{})
	case qos == stats.Guaranteed && limit != nil:
		return stats.Some(stats.Range{Min: *limit, Max: *limit})
	case qos == stats.Burstable && adj != nil && *adj >= oomScoreAdjBurstableMin &&
		*adj <= oomScoreAdjBurstableMax && capacity.OK:
		return stats.Some(requestFromOOMScoreAdj(*adj, capacity.V))
	}
	return stats.Opt[stats.Range]{}
}

// cpuRequest inverts the kubelet's cpu.shares = milli*1024/1000, floor, at least 2
// (pkg/kubelet/cm/helpers_linux.go MilliCPUToShares, v1.37). The result is in thousandths of a core
// and exact to one thousandth; the minimum of 2 shares means 0 to 2.
func cpuRequest(shares *uint64) stats.Opt[stats.Range] {
	const minShares = 2
	switch {
	case shares == nil || *shares > 1<<40:
		return stats.Opt[stats.Range]{}
	case *shares <= minShares:
		return stats.Some(stats.Range{Min: 0, Max: 2})
	}
	return stats.Some(stats.Range{Min: (*shares*1000 + 1023) / 1024,
		Max: ((*shares+1)*1000 - 1) / 1024})
}
