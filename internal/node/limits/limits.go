// Package limits writes pod cgroups as a kubelet does, on nodes without one: node allocatable to
// the cgroup above all pods, and protection of the memory that pods request. Both are off by
// default. The previous values are noted on each cgroup before the first write.
//
//	limits.go     Targets: the limits of the cgroup above all pods; steps of memory.max
//	cache.go      reclaims page cache that keeps memory.max above its target
//	capacity.go   the node's capacity
//	memoryqos.go  Plan: the protected memory of pods, and where containers are throttled
//	gather.go     the inputs of a Plan: pod cgroups with data of objects and the runtime
//	confirm.go    what runtime and kernel confirm of pod objects; counts of skipped values
//	writer.go     Writer: reads, decides and writes in one pass; restores previous values
//	slices.go     slices with values that systemd does not know yet, noted on them
//	systemd.go    sets the properties of systemd's slices
//	part.go       Part: background passes
//
// A write to memory.max or memory.high may reclaim before it returns, and a write to memory.max may
// kill (cgroup.SetLimit). So passes run in the background, one at a time, and neither memory.max nor
// memory.high is lowered below usage.
//
// No library sets the limits. The systemd manager of
// github.com/opencontainers/cgroups has one connection for the life of the process that cannot be
// closed or bounded in time, and makes systemd write a memory.max before it writes the file itself,
// so that process 1 may have to reclaim. github.com/containerd/cgroups/v3/cgroup2 opens files by
// path and creates missing ones. Both block while they write. This package writes six files of
// groups that package cgroup holds by descriptor, and makes one call of
// github.com/coreos/go-systemd, which both libraries use (0.03 MB, no further package).
package limits

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/cgroup"
	"jettison/stats"
)

// Targets are the limits of the cgroup above all pods. Absent limits are not written.
type Targets struct {
	MemoryMax stats.Opt[uint64] // bytes
	PIDsMax   stats.Opt[uint64] // tasks
	CPUWeight stats.Opt[uint64] // 1 to 10000
}

// TargetsOf returns the limits of the enforced resources. A limit of 0 bytes or tasks would end
// every pod, so it is absent. A kubelet does not write a memory.max of 0 either, but writes a
// pids.max of 1 (opencontainers/cgroups v0.1.0 fs2/pids.go setPids), with which no pod starts.
// Limits on huge pages, which a kubelet also writes, are omitted
// (pkg/kubelet/cm/node_container_manager_linux.go getCgroupConfigInternal, v1.37.2).
func TargetsOf(enforced v1.ResourceList) (t Targets) {
	if q, ok := enforced[v1.ResourceMemory]; ok && q.Value() > 0 {
		t.MemoryMax = stats.Some(uint64(q.Value()))
	}
	if q, ok := enforced[admit.ResourcePIDs]; ok && q.Value() > 0 {
		t.PIDsMax = stats.Some(uint64(q.Value()))
	}
	if q, ok := enforced[v1.ResourceCPU]; ok {
		t.CPUWeight = stats.Some(cpuWeight(q.MilliValue()))
	}
	return t
}

// Bounds of cpu.shares, of cgroup v1 (kernel/sched/sched.h MIN_SHARES, MAX_SHARES).
const (
	minShares    = 2
	maxShares    = 262144
	sharesPerCPU = 1024
)

// cpuWeight returns the cpu.weight of thousandths of a core as the kubelet computes it for its own
// cgroups: through cpu.shares, then linearly, so that one core is 39 (pkg/kubelet/cm
// helpers_linux.go MilliCPUToShares, cgroup_manager_linux.go getCPUWeight, v1.37.2). Runtimes use
// another curve for containers, with 100 for one core (opencontainers/cgroups
// ConvertCPUSharesToCgroupV2Value).
func cpuWeight(milli int64) uint64 {
	shares := int64(maxShares)
	if milli < maxShares { // also prevents an overflow of the product
		shares = max(minShares, min(maxShares, max(milli, 0)*sharesPerCPU/1000))
	}
	if shares == maxShares {
		return 10000
	}
	return 1 + uint64(shares-minShares)*9999/262142
}

const (
	// raceMargin is the minimum distance of memory.max from usage: the memory that pods may
	// allocate between the reading and the write. One core allocates 8 GiB/s at most, and the
	// reading and the write are system calls on one thread.
	raceMargin = 32 << 20
	// stepMargin is the distance from usage of a limit on its way down, in addition to 1/32 of
	// usage. With it the limit alone does not meet the hard threshold of
	// allocatableMemory.available (100Mi by default); only growing pods do.
	stepMargin = 160 << 20
	// minStep is the minimum step of a limit on its way down.
	minStep = 16 << 20
)

// lower returns the next memory.max on the way to a target, for a cgroup with the limit now and the
// usage current. The value is the target if that is above usage, else the nearest safe value. It is
// never below usage, and never above now unless the target is.
func lower(target uint64, now cgroup.Limit, current uint64) (value cgroup.Limit, reached bool) {
	has := uint64(math.MaxUint64)
	if !now.Unlimited {
		has = now.Bytes
	}
	if target >= has || target >= stats.SaturatingAdd(current, raceMargin) {
		return cgroup.Limit{Bytes: target}, true
	}
	step := stats.SaturatingAdd(current, stats.SaturatingAdd(stepMargin, current/32))
	if step >= has || has-step < minStep {
		return now, false
	}
	return cgroup.Limit{Bytes: step}, false
}
