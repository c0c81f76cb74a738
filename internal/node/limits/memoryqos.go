package limits

import (
	"math"
	"slices"
	"strings"

	"jettison/cgroup"
	"jettison/stats"
)

// Pod is the input of a Plan about a pod.
type Pod struct {
	Cgroup   string         // path below the root
	QOSClass stats.QOSClass // by its cgroup
	// memory in bytes, with overhead; absent: unknown, so the pod is not protected
	Request stats.Opt[uint64]
	// Limit of memory in bytes with overhead, of a pod with pod-level resources. Absent: it has none,
	// or request and limit are not both confirmed, so the pod's cgroup is not throttled.
	Limit      stats.Opt[uint64]
	Containers []Container
	// requests and limits of the pod's object that the runtime or the kernel contradicts
	Unconfirmed int
}

// Container is the input of a Plan about a container.
type Container struct {
	Cgroup  string
	Request stats.Opt[uint64] // memory in bytes; 0: no request
	// Limit of memory in bytes; 0: no limit. Absent: request and limit are not both known exactly and
	// confirmed, so the container is not throttled.
	Limit stats.Opt[uint64]
}

// Rule combines a Setting with the value that the file had before the agent wrote it.
type Rule uint8

// The rules.
const (
	More    Rule = iota // the sum
	AtLeast             // the greater value
	AtMost              // the lower value
)

// Setting is one value of a Plan.
type Setting struct {
	Bytes uint64
	Rule  Rule
}

// with returns the value to write into a file that had the value before.
func (s Setting) with(before cgroup.Limit) cgroup.Limit {
	switch {
	case before.Unlimited && s.Rule != AtMost:
		return before
	case s.Rule == More:
		return cgroup.Limit{Bytes: stats.SaturatingAdd(before.Bytes, s.Bytes)}
	case s.Rule == AtLeast:
		return cgroup.Limit{Bytes: max(before.Bytes, s.Bytes)}
	case before.Unlimited:
		return cgroup.Limit{Bytes: s.Bytes}
	}
	return cgroup.Limit{Bytes: min(before.Bytes, s.Bytes)}
}

// Settings contains the values to write, by cgroup and file.
type Settings map[string]map[cgroup.LimitFile]Setting

func (s Settings) set(path string, file cgroup.LimitFile, to Setting) {
	if to.Bytes == 0 {
		return
	}
	if s[path] == nil {
		s[path] = map[cgroup.LimitFile]Setting{}
	}
	s[path][file] = to
}

// Budget has the limits of a Plan.
type Budget struct {
	// Allocatable is the memory left for pods in bytes, enforced or not. memory.min and memory.low
	// of all pods together are at most this without HugePages, and a container without a limit is
	// throttled as if this were its limit, as in a kubelet. 0: unknown; then nothing is protected.
	Allocatable uint64
	HugePages   uint64  // preallocated, in bytes; other memory of pods cannot use them
	Factor      float64 // memoryThrottlingFactor; 0: nothing is throttled
	Page        uint64  // bytes
}

// Plan protects the memory that pods request: memory.min of Guaranteed pods, which is never
// reclaimed, memory.low of Burstable pods, which is reclaimed last, and the same of their
// containers. Protection is effective only up to the protection of each cgroup above (v6.12
// mm/page_counter.c effective_protection), so those get the sum of each. The kubelet differs: it
// gives the cgroup of all pods the sum of both as memory.min
// (pkg/kubelet/cm/qos_container_manager_linux.go setMemoryQoS, v1.37.2). All pods together get at
// most node allocatable without huge pages, Guaranteed ones first: if more than the node's memory is
// protected, the kernel can only kill. Page cache below memory.min is not reclaimed either, but memory.available
// counts it as available, as in a kubelet, so no threshold detects this.
//
// Containers, and pods with pod-level resources, that may use more than their request are throttled
// before their limit, with memory.high. Containers without a limit, as all of a BestEffort pod, are
// throttled before node allocatable.
func Plan(pods []Pod, b Budget) Settings {
	out := Settings{}
	if b.Allocatable == 0 {
		return out
	}
	sums := map[string]map[cgroup.LimitFile]uint64{}
	left := b.Allocatable - min(b.HugePages, b.Allocatable)
	for _, p := range protectable(pods) {
		file, _ := protectionOf(p.QOSClass)
		own := uint64(0)
		if p.Request.OK {
			own = min(p.Request.V, left)
		}
		left -= own
		out.set(p.Cgroup, file, Setting{own, AtLeast})
		for _, above := range above(p.Cgroup) {
			if sums[above] == nil {
				sums[above] = map[cgroup.LimitFile]uint64{}
			}
			sums[above][file] += own
		}
		for _, c := range p.Containers {
			if c.Request.OK {
				out.set(c.Cgroup, file, Setting{min(c.Request.V, own), AtLeast})
			}
		}
	}
	for path, of := range sums {
		for file, sum := range of {
			out.set(path, file, Setting{sum, More})
		}
	}
	for i := range pods {
		throttle(out, &pods[i], b)
	}
	return out
}

// protectable returns the pods of the protected classes: Guaranteed ones first, each class by
// cgroup, so that all passes protect the same pods.
func protectable(pods []Pod) (out []*Pod) {
	for i := range pods {
		if _, ok := protectionOf(pods[i].QOSClass); ok {
			out = append(out, &pods[i])
		}
	}
	slices.SortFunc(out, func(a, b *Pod) int {
		if a.QOSClass != b.QOSClass && a.QOSClass == stats.Guaranteed {
			return -1
		}
		if a.QOSClass != b.QOSClass {
			return 1
		}
		return strings.Compare(a.Cgroup, b.Cgroup)
	})
	return out
}

// protectionOf returns the file that protects a class (pkg/kubelet/cm/helpers_linux.go
// ResourceConfigForPod, v1.37.2, with the policy TieredReservation).
func protectionOf(class stats.QOSClass) (file cgroup.LimitFile, ok bool) {
	switch class {
	case stats.Guaranteed:
		return cgroup.FileMemoryMin, true
	case stats.Burstable:
		return cgroup.FileMemoryLow, true
	}
	return "", false
}

// throttle adds the memory.high of a pod's cgroup and of its containers.
func throttle(out Settings, p *Pod, b Budget) {
	if high, ok := throttledAt(p.Request, p.Limit, b); ok {
		out.set(p.Cgroup, cgroup.FileMemoryHigh, Setting{high, AtMost})
	}
	for _, c := range p.Containers {
		if high, ok := throttledAt(c.Request, c.Limit, b); ok {
			out.set(c.Cgroup, cgroup.FileMemoryHigh, Setting{high, AtMost})
		}
	}
}

// throttledAt returns the memory.high of a cgroup, in whole pages: its request plus a part of the
// memory up to its limit, or up to node allocatable without one. ok is false if request and limit
// are equal but not 0, or the result does not exceed the request
// (pkg/kubelet/kuberuntime/kuberuntime_container_linux.go generateLinuxContainerResources,
// pkg/kubelet/cm/helpers_linux.go memoryHighForPod, v1.37.2).
func throttledAt(of, limit stats.Opt[uint64], b Budget) (bytes uint64, ok bool) {
	if !of.OK || !limit.OK || of.V == limit.V && of.V != 0 {
		return 0, false
	}
	most := limit.V
	if most == 0 {
		most = b.Allocatable
	}
	request := float64(of.V)
	pages := math.Floor(request+(float64(most)-request)*b.Factor) / float64(b.Page)
	if !(pages >= 1) || pages >= math.MaxInt64/float64(b.Page) {
		return 0, false
	}
	high := uint64(pages) * b.Page
	return high, high > of.V
}

// above returns the paths of the cgroups above one, without the root.
func above(path string) (out []string) {
	for i, c := range path {
		if c == '/' {
			out = append(out, path[:i])
		}
	}
	return out
}

// within reports whether path is other or below it.
func within(path, other string) bool {
	return other != "" && (path == other || strings.HasPrefix(path, other+"/"))
}
