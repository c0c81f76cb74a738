package admission

import (
	"cmp"
	"maps"
	"math"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/admit"
	"jettison/cri"
	"jettison/internal/base/podjson"
	"jettison/internal/node/manifests"
	"jettison/stats"
	"jettison/stats/read"
	"jettison/stats/read/podindex"
)

// Annotations that the kubelet sets (pkg/kubelet/types/pod_update.go). The runtime receives them
// from the process that creates the pod, which runs as root.
const (
	annotationSource = "kubernetes.io/config.source"
	annotationMirror = "kubernetes.io/config.mirror"
)

// systemCriticalPriority is the lowest priority of critical pods (pkg/apis/scheduling/types.go
// SystemCriticalPriority).
const systemCriticalPriority = 2_000_000_000

// incomingPod is a pod with a sandbox that the runtime is about to run.
type incomingPod struct {
	admit.PodAttributes
	tolerationsKnown bool
	// preemptAs holds the attributes that preemption uses. nil: neither the runtime, a manifest nor an
	// object from root gives the pod's priority.
	preemptAs *admit.PodAttributes
}

// resolvePod collects the attributes of a sandbox's pod. A static manifest takes precedence, then
// the object with the same UID, then the runtime's data. An object with another name belongs to
// another pod and is ignored. The QoS class is that of the cgroup where the pod will run, if the
// runtime reports that class.
func (a *Admission) resolvePod(s *Snapshot, sandbox *cri.PodSandbox) *incomingPod {
	if sandbox.UID == "" {
		return a.podWithoutUID(s, sandbox)
	}
	index := read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{*sandbox}})
	reported := index[sandbox.UID].FromRuntime(s.self)
	out, byMember := &incomingPod{tolerationsKnown: true}, false
	if m := matchManifest(s, index, reported.PodRef); m != nil {
		out.PodAttributes = admit.PodAttributes{Pod: manifests.Static(m, reported.PodRef), Manifest: true}
	} else if object := s.objects[sandbox.UID]; object != nil && sameName(object, reported.PodRef) {
		out.PodAttributes, byMember = admit.StoredObject(object), s.members[sandbox.UID]
	} else {
		return a.podFromRuntime(sandbox, &reported)
	}
	own := *out.Pod
	if reported.QOSClass != "" {
		own.Status.QOSClass = v1.PodQOSClass(reported.QOSClass)
	}
	own.Status.Phase = "" // it is about to run: an earlier phase does not count
	out.Pod = &own
	out.PodAttributes = admit.Prepared(out.PodAttributes)
	out.boundRequests(sandbox, reported.QOSClass, byMember)
	out.UntrustedPriority = byMember
	// A member of the socket's group must not cause preemption, by a priority or by requests.
	if out.preemptAs = &out.PodAttributes; byMember {
		out.preemptAs = a.podFromRuntime(sandbox, &reported).preemptAs
	}
	return out
}

// boundRequests limits the pod's requests to the range that the runtime's data allows. It changes
// the pod, but nothing that the pod shares with its object.
func (p *incomingPod) boundRequests(sandbox *cri.PodSandbox, class stats.QOSClass, byMember bool) {
	held := admit.HeldBy(p.PodAttributes)
	held.Requests = maps.Clone(held.Requests)
	least, most := minRequests(sandbox, class), admit.Amounts(nil)
	if byMember { // for root's object the bound could be too low: it adds up the limits that are set
		most = maxRequests(sandbox)
	}
	if !clampRequests(held.Requests, class, admit.Amounts{
		v1.ResourceCPU: least.Cpu().MilliValue(), v1.ResourceMemory: least.Memory().Value(),
	}, most) {
		return
	}
	pod := p.Pod
	pod.Status.QOSClass = v1.PodQOSClass(held.QOS) // the new requests would change it
	podjson.DropAllocation(pod)                    // the new requests take its place
	resources := v1.ResourceRequirements{}
	if pod.Spec.Resources != nil {
		resources = *pod.Spec.Resources
	}
	resources.Requests = maps.Clone(resources.Requests)
	pod.Spec.Overhead = maps.Clone(pod.Spec.Overhead)
	if resources.Requests == nil {
		resources.Requests = v1.ResourceList{}
	}
	delete(pod.Spec.Overhead, v1.ResourceCPU) // held.Requests already includes the overhead
	delete(pod.Spec.Overhead, v1.ResourceMemory)
	resources.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(held.Requests[v1.ResourceCPU],
		resource.DecimalSI)
	resources.Requests[v1.ResourceMemory] = *resource.NewQuantity(held.Requests[v1.ResourceMemory],
		resource.BinarySI)
	pod.Spec.Resources = &resources
	p.PodAttributes = admit.Prepared(p.PodAttributes)
}

// matchManifest returns the static manifest that a starting pod is from; nil without one. A
// manifest has one pod: while another pod of the manifest exists, the new one is not from it,
// unless it has the manifest's own UID.
func matchManifest(s *Snapshot, index read.Index, ref stats.PodReference) *v1.Pod {
	m := manifests.Match(s.manifests, index)[ref.UID]
	if m == nil || string(m.UID) == ref.UID {
		return m
	}
	all := manifests.Match(s.manifests, s.runtime)
	for i := range s.Node.Pods {
		if uid := string(s.Node.Pods[i].UID); uid != ref.UID && all[uid] == m {
			return nil
		}
	}
	return m
}

// clampRequests limits the CPU and memory requests of an object to the runtime's bounds, and
// reports whether it changed them. Without the bounds a client that may provide objects could claim
// the whole node, or hide the usage of a pod. A pod in a BestEffort cgroup requests neither.
func clampRequests(r admit.Amounts, class stats.QOSClass,
	least, most admit.Amounts) (changed bool) {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		v := r[name]
		if class == stats.BestEffort {
			v = 0
		} else if m, ok := most[name]; ok {
			v = min(v, m)
		}
		v = max(v, least[name])
		changed = changed || v != r[name]
		if r[name] = v; v == 0 {
			delete(r, name)
		}
	}
	return changed
}

// maxRequests returns the upper bounds of a pod's requests by the runtime's sandbox data; a
// resource without a bound is missing. For a sandbox made by a kubelet, the memory limit is the sum
// over all containers, and is set only if each has one. The runtime does not report CPU overhead.
func maxRequests(sandbox *cri.PodSandbox) admit.Amounts {
	out := admit.Amounts{}
	if cpu := podindex.CPURequest(sandbox.CPUShares); cpu.OK && cpu.V.Min > 0 &&
		sandbox.Overhead == nil {
		out[v1.ResourceCPU] = clamped(cpu.V.Max)
	}
	if sandbox.MemoryLimit != nil && *sandbox.MemoryLimit > 0 {
		memory := *sandbox.MemoryLimit
		if sandbox.Overhead != nil {
			memory = max(memory, memory+*sandbox.Overhead)
		}
		out[v1.ResourceMemory] = clamped(memory)
	}
	return out
}

// podFromRuntime returns a pod that only the runtime describes. If its priority is unknown and the
// policy therefore protects it from eviction, the pod counts as critical. An unknown QoS class
// counts as Burstable, which pressure does not reject.
func (a *Admission) podFromRuntime(sandbox *cri.PodSandbox, reported *stats.PodStats) *incomingPod {
	priority, protected := a.policy.Load().PriorityAndProtection(reported, nil)
	out, known := &incomingPod{}, priority.OK
	if !priority.OK && protected != "" {
		priority = stats.Some[int32](systemCriticalPriority)
	}
	ref := reported.PodRef
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: types.UID(ref.UID), Namespace: ref.Namespace, Name: ref.Name,
		Annotations: reported.Annotations,
	}}
	if priority.OK {
		pod.Spec.Priority = &priority.V
	}
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: minRequests(
		sandbox, reported.QOSClass)}}}
	pod.Status.QOSClass = v1.PodQOSClass(cmp.Or(reported.QOSClass, stats.Burstable))
	// The annotations come from the runtime.
	out.PodAttributes = admit.Prepared(admit.PodAttributes{Pod: pod, Manifest: true, UntrustedPriority: !known})
	if known {
		out.preemptAs = &out.PodAttributes
	}
	return out
}

// podWithoutUID returns the pod of a sandbox without a UID, which was created by hand. Such a pod
// has no object. The indexes use UIDs as keys, so the pod temporarily gets the UID of its cgroup.
func (a *Admission) podWithoutUID(s *Snapshot, sandbox *cri.PodSandbox) *incomingPod {
	one := *sandbox
	one.UID = "none"
	dir, base := path.Split(podindex.CgroupOfParent(one.CgroupParent))
	if c, ok := stats.ParsePodCgroup(strings.Trim(dir, "/"), base); ok {
		one.UID = c.UID
	}
	reported := read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{one}})[one.UID].FromRuntime(s.self)
	reported.PodRef.UID = ""
	out := a.podFromRuntime(sandbox, &reported)
	out.preemptAs = nil // without a UID no reservation is possible, and so no preemption
	return out
}

// sameName reports whether an object can belong to a pod of the runtime: namespace and name are
// equal where both are known.
func sameName(object *v1.Pod, runtime stats.PodReference) bool {
	same := func(a, b string) bool { return a == b || a == "" || b == "" }
	return same(object.Namespace, runtime.Namespace) && same(object.Name, runtime.Name)
}

// minRequests returns the lower bounds of a pod's requests by the runtime's sandbox data: CPU from
// its shares, memory from the limit of a Guaranteed pod, plus the overhead.
func minRequests(sandbox *cri.PodSandbox, class stats.QOSClass) v1.ResourceList {
	out := v1.ResourceList{}
	if cpu := podindex.CPURequest(sandbox.CPUShares); cpu.OK && cpu.V.Min > 0 {
		out[v1.ResourceCPU] = *resource.NewMilliQuantity(clamped(cpu.V.Min), resource.DecimalSI)
	}
	memory := uint64(0)
	if sandbox.MemoryLimit != nil && class == stats.Guaranteed {
		memory = *sandbox.MemoryLimit
	}
	if sandbox.Overhead != nil {
		memory = max(memory, memory+*sandbox.Overhead)
	}
	if memory > 0 {
		out[v1.ResourceMemory] = *resource.NewQuantity(clamped(memory), resource.BinarySI)
	}
	return out
}

func clamped(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
