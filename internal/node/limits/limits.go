// Package limits writes into the cgroups of pods what a kubelet would, on nodes without one: node
// allocatable into the cgroup above all pods, and protection of the memory that pods request. Both
// are off by default, and what was there before is noted on each cgroup first.
//
//	limits.go      Targets: what the cgroup above all pods is limited to; how memory.max gets there
//	cache.go       takes page cache that keeps memory.max away from its target
//	capacity.go    what a node has
//	memoryqos.go   Plan: what of pods' memory is protected, and where containers are throttled
//	gather.go      the pods that a Plan is made of: their cgroups, with what objects and the runtime
//	               tell
//	writer.go      Writer: reads, decides and writes, in one pass; puts back
//	tell.go        which slices systemd is still to be told of, noted on them
//	systemd.go     tells systemd what the files of its slices say
//	part.go        Part: passes beside the loop
//
// A write to memory.max or memory.high may reclaim, and to memory.max kill, before it returns
// (cgroup.SetLimit). So passes run beside the loop, one at a time, and memory.max is never set
// below what is used.
//
// The libraries that set limits were weighed. github.com/containerd/cgroups/v3/cgroup2 (v3.1.3)
// costs 24 packages and 1.07 MB of the binary (an eBPF loader), opens files by path and creates
// what is not there. The systemd manager of github.com/opencontainers/cgroups (v0.1.0, 0.16 MB) has
// one connection for the life of the process, which nobody can close or bound in time, has systemd
// write a memory.max before it does itself, so that the first process may be who reclaims, and
// takes no other mount than /sys/fs/cgroup. Neither writes without blocking. What is left to do is
// six files of groups that package cgroup holds by their descriptors, and one call of
// github.com/coreos/go-systemd, which both use (0.03 MB, no further package).
package limits

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/cgroup"
	"jettison/stats"
)

// Targets are what the cgroup above all pods is limited to. What is absent is not written.
type Targets struct {
	MemoryMax stats.Opt[uint64] // bytes
	PIDsMax   stats.Opt[uint64] // tasks
	CPUWeight stats.Opt[uint64] // 1 to 10000
}

// TargetsOf are those of what is enforced. 0 bytes or tasks would end every pod: they are no
// target. A kubelet writes no memory.max of 0 either, but a pids.max of 1 then
// (opencontainers/cgroups v0.1.0 fs2/pids.go setPids), by which no pod starts. Limits on huge
// pages, which a kubelet writes too, are not (pkg/kubelet/cm/node_container_manager_linux.go
// getCgroupConfigInternal, v1.36.3).
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

// cpuWeight is the cpu.weight of so many thousandths of a core, as the kubelet has it for the
// cgroups that it makes itself: by way of cpu.shares, and from there in a straight line, so that
// one core is 39 (pkg/kubelet/cm helpers_linux.go MilliCPUToShares, cgroup_manager_linux.go
// getCPUWeight, v1.36.3). Runtimes take another curve for containers, by which one core is 100
// (opencontainers/cgroups ConvertCPUSharesToCgroupV2Value).
func cpuWeight(milli int64) uint64 {
	shares := int64(maxShares)
	if milli < maxShares { // more would not fit a product either
		shares = max(minShares, min(maxShares, max(milli, 0)*sharesPerCPU/1000))
	}
	if shares == maxShares {
		return 10000
	}
	return 1 + uint64(shares-minShares)*9999/262142
}

const (
	// raceMargin is how far above what is used memory.max is set at least: what pods may take between
	// the reading and the write. One core takes 8 GiB/s at most, and both are system calls on one
	// thread.
	raceMargin = 32 << 20
	// stepMargin is how far above use a limit stays that is on its way down, beside a 32nd of the use:
	// so far that the hard threshold of allocatableMemory.available (100Mi by default) is not met by
	// the limit alone, but by pods that grow.
	stepMargin = 160 << 20
	// leastStep is by how much a limit on its way down is lowered at least.
	leastStep = 16 << 20
)

// lower is what memory.max may be set to on its way to a target, of a group whose limit is now and
// that uses so much: the target where that is above what is used, else as near as is safe. It is
// never below what is used, and never above now but for a target that is.
func lower(target uint64, now cgroup.Limit, current uint64) (value cgroup.Limit, reached bool) {
	has := uint64(math.MaxUint64)
	if !now.Unlimited {
		has = now.Bytes
	}
	if target >= has || target >= stats.SaturatingAdd(current, raceMargin) {
		return cgroup.Limit{Bytes: target}, true
	}
	step := stats.SaturatingAdd(current, stats.SaturatingAdd(stepMargin, current/32))
	if step >= has || has-step < leastStep {
		return now, false
	}
	return cgroup.Limit{Bytes: step}, false
}
