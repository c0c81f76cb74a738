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
	"jettison/internal/node/manifests"
	"jettison/stats"
	"jettison/stats/read"
	"jettison/stats/read/podindex"
)

// Annotations of the kubelet (pkg/kubelet/types/pod_update.go), which the runtime has from who
// starts a pod: root.
const (
	annotationSource = "kubernetes.io/config.source"
	annotationMirror = "kubernetes.io/config.mirror"
)

// systemCriticalPriority is the lowest priority of critical pods (pkg/apis/scheduling/types.go
// SystemCriticalPriority).
const systemCriticalPriority = 2_000_000_000

// asking is a pod whose sandbox the runtime is about to run.
type asking struct {
	admit.PodAttributes
	tolerates bool // its tolerations are known
	// wants is it as room is made for it; nil: its priority is not known by the runtime's word, a
	// manifest or an object that root put.
	wants *admit.PodAttributes
}

// asking finds out who asks: the object that the node has by the UID, the manifest that the pod is
// of, or what the runtime tells. An object by another name is another pod's, and counts for
// nothing, and none counts before a manifest. The class is that of the cgroup in which the pod will
// run, where the runtime tells it.
func (a *Admission) asking(s *Snapshot, sandbox *cri.PodSandbox) *asking {
	if sandbox.UID == "" {
		return a.unnamed(s, sandbox)
	}
	index := read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{*sandbox}})
	told := index[sandbox.UID].Told(s.self)
	out, byMember := &asking{tolerates: true}, false
	if m := ofManifest(s, index, told.PodRef); m != nil {
		out.PodAttributes = admit.PodAttributes{Pod: manifests.Static(m, told.PodRef), Manifest: true}
	} else if object := s.objects[sandbox.UID]; object != nil && names(object, told.PodRef) {
		out.PodAttributes, byMember = attributes(object), s.members[sandbox.UID]
	} else {
		return a.byRuntime(sandbox, &told)
	}
	own := *out.Pod
	if told.QOSClass != "" {
		own.Status.QOSClass = v1.PodQOSClass(told.QOSClass)
	}
	own.Status.Phase = "" // it is about to run, whatever became of it before
	out.Pod = &own
	out.PodAttributes = admit.Prepared(out.PodAttributes)
	out.weigh(sandbox, told.QOSClass, byMember)
	out.Doubted = byMember
	// who has nobody killed, neither by a priority nor by what it says is requested
	if out.wants = &out.PodAttributes; byMember {
		out.wants = a.byRuntime(sandbox, &told).wants
	}
	return out
}

// weigh has a pod request what lies between the runtime's bounds. It writes the pod, but nothing
// that it shares with its object.
func (p *asking) weigh(sandbox *cri.PodSandbox, class stats.QOSClass, byMember bool) {
	held := admit.HeldBy(p.PodAttributes)
	held.Requests = maps.Clone(held.Requests)
	least, most := requested(sandbox, class), admit.Amounts(nil)
	if byMember { // else root wrote it
		most = atMost(sandbox)
	}
	if !between(held.Requests, class, admit.Amounts{
		v1.ResourceCPU: least.Cpu().MilliValue(), v1.ResourceMemory: least.Memory().Value(),
	}, most) {
		return
	}
	pod := p.Pod
	pod.Status.QOSClass = v1.PodQOSClass(held.QOS) // which the words below would change
	whole := v1.ResourceRequirements{}
	if pod.Spec.Resources != nil {
		whole = *pod.Spec.Resources
	}
	whole.Requests, pod.Spec.Overhead = maps.Clone(whole.Requests), maps.Clone(pod.Spec.Overhead)
	if whole.Requests == nil {
		whole.Requests = v1.ResourceList{}
	}
	delete(pod.Spec.Overhead, v1.ResourceCPU) // which comes on top, and is in what was weighed
	delete(pod.Spec.Overhead, v1.ResourceMemory)
	whole.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(held.Requests[v1.ResourceCPU],
		resource.DecimalSI)
	whole.Requests[v1.ResourceMemory] = *resource.NewQuantity(held.Requests[v1.ResourceMemory],
		resource.BinarySI)
	pod.Spec.Resources = &whole
	p.PodAttributes = admit.Prepared(p.PodAttributes)
}

// ofManifest is the manifest that a pod is of which the runtime is about to run; nil: none is. A
// manifest has one pod: as long as another one lives by it, this is not it, whatever it is called,
// unless it has the manifest's own UID.
func ofManifest(s *Snapshot, index read.Index, ref stats.PodReference) *v1.Pod {
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

// between brings what an object requests of cpu and memory to where it may be by the runtime's
// word, and reports whether it was elsewhere. Who may put an object could else take the node from
// all others, or hide what a pod takes. A pod in a cgroup of class BestEffort requests neither.
func between(r admit.Amounts, class stats.QOSClass, least, most admit.Amounts) (changed bool) {
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

// atMost is what a pod requests at most, by what the runtime is told of the sandbox, as far as that
// has bounds: where a kubelet made it, its memory limit is that of all containers together, and is
// there only if each has one. Nobody tells of CPU in the overhead.
func atMost(sandbox *cri.PodSandbox) admit.Amounts {
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

// byRuntime is a pod of which only the runtime tells. Whose priority is unknown, and who would
// never be a victim for that, is not refused for it either. A class that is not known is not the
// one that pressure refuses.
func (a *Admission) byRuntime(sandbox *cri.PodSandbox, told *stats.PodStats) *asking {
	priority, protected := a.policy.Load().Judge(told, nil)
	out, sure := &asking{}, priority.OK
	if !priority.OK && protected != "" {
		priority = stats.Some[int32](systemCriticalPriority)
	}
	ref := told.PodRef
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: types.UID(ref.UID), Namespace: ref.Namespace, Name: ref.Name, Annotations: told.Annotations,
	}}
	if priority.OK {
		pod.Spec.Priority = &priority.V
	}
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: requested(
		sandbox, told.QOSClass)}}}
	pod.Status.QOSClass = v1.PodQOSClass(cmp.Or(told.QOSClass, stats.Burstable))
	// The annotations are the runtime's word.
	out.PodAttributes = admit.Prepared(admit.PodAttributes{Pod: pod, Manifest: true, Doubted: !sure})
	if sure {
		out.wants = &out.PodAttributes
	}
	return out
}

// unnamed is a sandbox that was made by hand, without a UID: no object is its, and nothing else is
// different. The lists know pods by UID, so it is given that of its cgroup until it is read.
func (a *Admission) unnamed(s *Snapshot, sandbox *cri.PodSandbox) *asking {
	one := *sandbox
	one.UID = "none"
	dir, base := path.Split(podindex.CgroupOfParent(one.CgroupParent))
	if c, ok := stats.ParsePodCgroup(strings.Trim(dir, "/"), base); ok {
		one.UID = c.UID
	}
	told := read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{one}})[one.UID].Told(s.self)
	told.PodRef.UID = ""
	out := a.byRuntime(sandbox, &told)
	out.wants = nil // nothing is kept for it, so nobody goes for it
	return out
}

// names reports whether an object is of a pod of the runtime.
func names(object *v1.Pod, runtime stats.PodReference) bool {
	same := func(a, b string) bool { return a == b || a == "" || b == "" }
	return same(object.Namespace, runtime.Namespace) && same(object.Name, runtime.Name)
}

// requested is what a pod requests at least, by what the runtime is told of the sandbox: CPU by its
// shares, and memory where it is the limit, as of a Guaranteed pod. Its overhead comes on top.
func requested(sandbox *cri.PodSandbox, class stats.QOSClass) v1.ResourceList {
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
