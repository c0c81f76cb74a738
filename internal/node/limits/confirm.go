package limits

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"jettison/admit"
	"jettison/cgroup"
	"jettison/cri"
	"jettison/internal/node/cgroupundo"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// claim is the pod object of root or of a manifest, with defaults.
type claim struct {
	pod       *v1.Pod
	request   uint64
	limit     uint64 // of pod-level resources, with overhead; 0: none
	allocated bool   // the status has the kubelet's allocation
}

func newClaim(object *v1.Pod) claim {
	pod, requests := admit.Requested(admit.StoredObject(object))
	return claim{pod: pod, request: uint64(requests[v1.ResourceMemory]), limit: podLevelLimit(pod),
		allocated: stats.Allocated(object)}
}

// podLevelLimit returns the limit of a pod with pod-level resources, with overhead; 0: none. A
// manifest without a limit of its own has that of its containers, if all of them have one
// (pkg/kubelet/cm/helpers_linux.go ApplyPodLevelMemoryHigh, v1.37.2).
func podLevelLimit(pod *v1.Pod) uint64 {
	if !stats.PodLevel(pod.Spec.Resources) {
		return 0
	}
	limit := memory(pod.Spec.Resources.Limits)
	if limit == 0 && allLimited(pod) {
		limit = memory(resource.AggregateContainerLimits(pod, resource.PodResourcesOptions{}))
	}
	if limit > 0 {
		limit = stats.SaturatingAdd(limit, memory(pod.Spec.Overhead))
	}
	return limit
}

// allLimited reports whether all containers of a pod have a limit.
func allLimited(pod *v1.Pod) bool {
	unlimited := func(c v1.Container) bool { return memory(c.Resources.Limits) == 0 }
	return !slices.ContainsFunc(pod.Spec.Containers, unlimited) &&
		!slices.ContainsFunc(pod.Spec.InitContainers, unlimited)
}

// confirmed returns a request as far as the runtime does not contradict it. shown are the runtime's
// bounds. An allocation needs no confirmation. Without an allocation a request counts up to the
// upper bound: it may be a resize that the kubelet deferred.
func (c *claim) confirmed(request uint64, shown stats.Opt[stats.Range]) stats.Opt[uint64] {
	if shown.OK && !c.allocated {
		request = min(request, shown.V.Max)
	}
	return stats.Some(request)
}

// podLimit returns the pod-level limit of the pod if its cgroup may be throttled: its request is
// confirmed, and its memory.max is the limit. ok is false if the runtime or the kernel contradicts
// the object.
func (c *claim) podLimit(request stats.Opt[uint64], maxOf func() stats.Opt[cgroup.Limit]) (limit stats.Opt[uint64],
	ok bool) {
	if c.limit == 0 {
		return limit, true
	}
	ok = request == stats.Some(c.request) && maxOf() == stats.Some(kernelLimit(c.limit))
	return stats.Opt[uint64]{V: c.limit, OK: ok}, ok
}

// fill sets the request of a container, and its limit if the container may be throttled: its
// memory.max is the limit of the object. A container whose only limit is that of the pod is not
// throttled by itself. ok is false if the runtime or the kernel contradicts the object.
func (c *claim) fill(out *Container, of *cri.Container, shown stats.Opt[stats.Range],
	kernel stats.Opt[cgroup.Limit]) (ok bool) {
	r := resourcesOf(c.pod, of.Name)
	if r == nil { // an ephemeral container
		return true
	}
	request, limit := memory(r.Requests), memory(r.Limits)
	out.Request = c.confirmed(request, shown)
	ok = out.Request == stats.Some(request)
	if limit == 0 && c.limit > 0 {
		return ok
	}
	ok = ok && kernel == stats.Some(kernelLimit(limit))
	out.Limit = stats.Opt[uint64]{V: limit, OK: ok}
	return ok
}

// kernelLimit returns the memory.max that a runtime writes for a limit; 0: no limit.
func kernelLimit(limit uint64) cgroup.Limit {
	if limit == 0 {
		return cgroup.Limit{Unlimited: true}
	}
	return cgroupundo.Cut(cgroup.FileMemoryMax, cgroup.Limit{Bytes: limit})
}

// memoryMax reads memory.max of a cgroup; absent: not readable.
func memoryMax(fs *cgroup.FS, path string) stats.Opt[cgroup.Limit] {
	g, err := fs.Group(path)
	if err != nil {
		return stats.Opt[cgroup.Limit]{}
	}
	defer g.Close()
	limit, err := g.MemoryMax(make([]byte, 64))
	return stats.Opt[cgroup.Limit]{V: limit, OK: err == nil}
}

// pod merges the data about a pod. Requests and limits come from the pod object, as far as runtime
// and kernel confirm them. An object that only members of the socket's group provided changes no
// cgroup: the runtime's bounds are wide, and a member could choose any request within them. Without
// an object the minimum of the runtime's bounds is protected, and no container is throttled.
// Containers in the cgroup of a BestEffort pod have no request and no limit, with or without an
// object. maxOf returns the memory.max of a cgroup.
func (k *Known) pod(p stats.PodCgroup, object *v1.Pod, below []string,
	maxOf func(path string) stats.Opt[cgroup.Limit]) Pod {
	if k.Members[p.UID] {
		object = nil
	}
	out := Pod{Cgroup: p.Path, QOSClass: p.QOSClass}
	fromRuntime := k.Runtime[p.UID]
	var shown stats.Opt[stats.Range]
	if fromRuntime != nil {
		shown = fromRuntime.MemoryRequest(p.QOSClass, k.Capacity)
	}
	var c claim
	if out.Request = minimum(shown); object != nil {
		c = newClaim(object)
		out.Request = c.confirmed(c.request, shown)
		if out.Request.OK && out.Request.V != c.request {
			out.Unconfirmed++
		}
		var ok bool
		out.Limit, ok = c.podLimit(out.Request, func() stats.Opt[cgroup.Limit] { return maxOf(p.Path) })
		if !ok {
			out.Unconfirmed++
		}
	}
	if fromRuntime == nil {
		return out
	}
	for i := range fromRuntime.Containers {
		of := &fromRuntime.Containers[i]
		at := slices.IndexFunc(below, func(path string) bool { return isOf(path, of.ID) })
		if at < 0 {
			continue
		}
		container := Container{Cgroup: below[at]}
		shown := podindex.ContainerMemoryRequest(p.QOSClass, of, k.Capacity)
		switch {
		case p.QOSClass == stats.BestEffort:
			unlimited := maxOf(below[at]) == stats.Some(kernelLimit(0))
			container.Request, container.Limit = stats.Some[uint64](0), stats.Opt[uint64]{OK: unlimited}
		case object == nil:
			container.Request = minimum(shown)
		case !c.fill(&container, of, shown, maxOf(below[at])):
			out.Unconfirmed++
		}
		out.Containers = append(out.Containers, container)
	}
	return out
}

// minimum returns the minimum of a request. It is absent if it is 0, because then nothing is known.
func minimum(r stats.Opt[stats.Range]) stats.Opt[uint64] {
	return stats.Opt[uint64]{V: r.V.Min, OK: r.OK && r.V.Min > 0}
}

// Skipped counts the values that a pass did not write, or not in full, by the reason.
type Skipped struct {
	Unknown int // pods of a protected class with an unknown request
	// requests and limits of pod objects that the runtime or the kernel contradicts
	Unconfirmed int
	// pods that get less than their request, because all pods request more than node allocatable
	OverAllocatable int
	InUse           int // cgroups that use too much memory for a lower memory.high
}

// skipped counts the values that a plan leaves out or cuts.
func skipped(pods []Pod, plan Settings) (out Skipped) {
	for _, p := range protectable(pods) {
		file, _ := protectionOf(p.QOSClass)
		out.Unconfirmed += p.Unconfirmed
		switch {
		case !p.Request.OK:
			out.Unknown++
		case plan[p.Cgroup][file].Bytes < p.Request.V:
			out.OverAllocatable++
		}
	}
	return out
}
