package limits

import (
	"math"
	"strings"

	"jettison/cgroup"
	"jettison/stats"
)

// Pod is what protection takes of one.
type Pod struct {
	Cgroup   string         // path below the root
	QOSClass stats.QOSClass // by its cgroup
	// memory in bytes, with overhead. Absent: it is not known, and nothing is protected
	Request    stats.Opt[uint64]
	Containers []Container
}

// Container is what protection takes of one.
type Container struct {
	Cgroup  string
	Request stats.Opt[uint64] // memory in bytes; 0: it requests none
	// Limit of memory in bytes, 0: none. Absent: request and limit are not both known exactly, and it
	// is not throttled.
	Limit stats.Opt[uint64]
}

// Rule is how what a Setting says goes together with what was there before the agent came.
type Rule uint8

// The rules.
const (
	More    Rule = iota // it is added
	AtLeast             // the greater counts
	AtMost              // the lower counts
)

// Setting is one value of a Plan.
type Setting struct {
	Bytes uint64
	Rule  Rule
}

// with is what is to be written where a file said that before.
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

// Settings are by cgroup and file.
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

// Budget is what a Plan has to do with.
type Budget struct {
	// Allocatable is what is left for pods, in bytes, whatever they are held to: no cgroup above pods
	// protects more together, and a container without a limit is throttled as if that were its. 0: it
	// is not known; then nothing is protected.
	Allocatable uint64
	Factor      float64 // memoryThrottlingFactor
	Page        uint64  // bytes
}

// Plan protects the memory that pods request: memory.min of Guaranteed pods, which is never
// reclaimed, memory.low of Burstable ones, which is reclaimed last, and the same of their
// containers. It counts only as far as each cgroup above has as much (v6.12 mm/page_counter.c
// effective_protection), so those have the sum of each. There the kubelet differs: it gives the
// cgroup of all pods the sum of both as memory.min, and no memory.low, by which the memory.low
// below it counts for nothing (pkg/kubelet/cm/qos_container_manager_linux.go setMemoryQoS,
// v1.36.3). A sum is cut at what is allocatable: what is protected beyond the node's memory leaves
// the kernel nothing but to kill. Page cache below a memory.min is not reclaimed either, while
// memory.available counts it as available, as in a kubelet: no threshold sees that.
//
// Containers that may use more than they request are throttled before their limit: memory.high.
func Plan(pods []Pod, b Budget) Settings {
	out := Settings{}
	if b.Allocatable == 0 {
		return out
	}
	sums := map[string]map[cgroup.LimitFile]uint64{}
	for i := range pods {
		p := &pods[i]
		file, protected := protectionOf(p.QOSClass)
		if !protected {
			continue
		}
		if p.Request.OK {
			own := min(p.Request.V, b.Allocatable)
			out.set(p.Cgroup, file, Setting{own, AtLeast})
			for _, above := range above(p.Cgroup) {
				if sums[above] == nil {
					sums[above] = map[cgroup.LimitFile]uint64{}
				}
				sums[above][file] = min(stats.SaturatingAdd(sums[above][file], own), b.Allocatable)
			}
		}
		for _, c := range p.Containers {
			if c.Request.OK && p.Request.OK {
				out.set(c.Cgroup, file, Setting{min(c.Request.V, b.Allocatable), AtLeast})
			}
			if high, ok := throttledAt(c, b); ok {
				out.set(c.Cgroup, cgroup.FileMemoryHigh, Setting{high, AtMost})
			}
		}
	}
	for path, of := range sums {
		for file, sum := range of {
			out.set(path, file, Setting{sum, More})
		}
	}
	return out
}

// protectionOf is the file by which a class is protected (pkg/kubelet/cm/helpers_linux.go
// ResourceConfigForPod, v1.36.3, with the policy TieredReservation).
func protectionOf(class stats.QOSClass) (file cgroup.LimitFile, ok bool) {
	switch class {
	case stats.Guaranteed:
		return cgroup.FileMemoryMin, true
	case stats.Burstable:
		return cgroup.FileMemoryLow, true
	}
	return "", false
}

// throttledAt is the memory.high of a container, in whole pages: its request and a part of what it
// may use beyond it, up to its limit or, where it has none, to what is allocatable. None where
// request and limit are the same, or where nothing is left above the request
// (pkg/kubelet/kuberuntime/kuberuntime_container_linux.go generateLinuxContainerResources,
// v1.36.3).
func throttledAt(c Container, b Budget) (bytes uint64, ok bool) {
	if !c.Request.OK || !c.Limit.OK || c.Request.V == c.Limit.V {
		return 0, false
	}
	most := c.Limit.V
	if most == 0 {
		most = b.Allocatable
	}
	request := float64(c.Request.V)
	pages := math.Floor(request+(float64(most)-request)*b.Factor) / float64(b.Page)
	if !(pages >= 1) || pages >= math.MaxInt64/float64(b.Page) {
		return 0, false
	}
	high := uint64(pages) * b.Page
	return high, high > c.Request.V
}

// above are the paths of the cgroups above one, without the root.
func above(path string) (out []string) {
	for i, c := range path {
		if c == '/' {
			out = append(out, path[:i])
		}
	}
	return out
}

// within reports whether a cgroup is another one or lies below it.
func within(path, other string) bool {
	return other != "" && (path == other || strings.HasPrefix(path, other+"/"))
}
