package admission

import (
	"cmp"
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/admit"
	"jettison/cri"
	"jettison/internal/manifests"
	"jettison/stats"
	"jettison/stats/read"
)

// Annotations of the kubelet (pkg/kubelet/types/pod_update.go), which the runtime has from who starts a pod: root.
const (
	annotationSource = "kubernetes.io/config.source"
	annotationMirror = "kubernetes.io/config.mirror"
)

// systemCriticalPriority is the lowest priority of critical pods (pkg/apis/scheduling/types.go SystemCriticalPriority).
const systemCriticalPriority = 2_000_000_000

// asking is a pod whose sandbox the runtime is about to run.
type asking struct {
	admit.PodAttributes
	tolerates bool // its tolerations are known
	sure      bool // its priority is: an object or an annotation that counts tells it
}

// asking finds out who asks: the object that the node has by the UID, the manifest that the pod is of, or what the runtime tells. An object
// by another name is another pod's, and counts for nothing. The class is that of the cgroup in which the pod will run, where the runtime
// tells it.
func (a *Admission) asking(s *Snapshot, sandbox *cri.PodSandbox) asking {
	index := read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{*sandbox}})
	pod := index[sandbox.UID]
	if pod == nil { // without a UID
		return asking{PodAttributes: admit.PodAttributes{Pod: unnamed(sandbox)}}
	}
	told := pod.Told(s.self)
	out := asking{tolerates: true, sure: true}
	if object := s.objects[sandbox.UID]; object != nil && names(object, told.PodRef) {
		out.PodAttributes = attributes(object)
	} else if m := manifests.Match(s.manifests, index)[sandbox.UID]; m != nil {
		out.PodAttributes = admit.PodAttributes{Pod: manifests.Static(m, told.PodRef), Manifest: true}
	} else {
		return a.byRuntime(sandbox, &told)
	}
	own := *out.Pod
	if told.QOSClass != "" {
		own.Status.QOSClass = v1.PodQOSClass(told.QOSClass)
	}
	own.Status.Phase = "" // it is about to run, whatever became of it before
	out.Pod = &own
	return out
}

// byRuntime is a pod of which only the runtime tells. Whose priority is unknown, and who would never be a victim for that, is not refused
// for it either. A class that is not known is not the one that pressure refuses.
func (a *Admission) byRuntime(sandbox *cri.PodSandbox, told *stats.PodStats) asking {
	priority, protected := a.policy.Judge(told, nil)
	out := asking{sure: priority.OK}
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
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: requested(sandbox, told.QOSClass)}}}
	pod.Status.QOSClass = v1.PodQOSClass(cmp.Or(told.QOSClass, stats.Burstable))
	out.PodAttributes = admit.PodAttributes{Pod: pod, Manifest: true} // the annotations are the runtime's word
	return out
}

// unnamed is a sandbox that was made by hand, without a UID.
func unnamed(sandbox *cri.PodSandbox) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.Namespace, Name: sandbox.Name}}
	pod.Status.QOSClass = v1.PodQOSBurstable
	return pod
}

// names reports whether an object is of a pod of the runtime.
func names(object *v1.Pod, runtime stats.PodReference) bool {
	same := func(a, b string) bool { return a == b || a == "" || b == "" }
	return same(object.Namespace, runtime.Namespace) && same(object.Name, runtime.Name)
}

// requested is what a pod requests at least, by what the runtime is told of the sandbox: CPU by its shares, and memory where it is the
// limit, as of a Guaranteed pod. Its overhead comes on top.
func requested(sandbox *cri.PodSandbox, class stats.QOSClass) v1.ResourceList {
	out := v1.ResourceList{}
	if cpu := read.CPURequest(sandbox.CPUShares); cpu.OK && cpu.V.Min > 0 {
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
