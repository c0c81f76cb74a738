package podjson

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits of all pods of a node, after Fit. FitMemory is in bytes as by Size, such that all pods can
// be put again while the known ones exist.
const (
	FitPods   = 2000
	FitMemory = 5 << 20
	// fitOne is for one pod. Its JSON is up to six times as large, which is still below MaxPod.
	fitOne = 160 << 10
)

// Limits of the annotations that Minimal keeps: their number, and the bytes of each.
const (
	leastAnnotations = 8
	leastAnnotation  = 256
)

// Minimal returns the part of a trimmed pod that identifies it and has its priority and phase,
// without fields that an author can make arbitrarily large. Its requests and its allocation are
// unknown, which counts as zero: it becomes a victim earlier.
func Minimal(p *v1.Pod) *v1.Pod {
	out := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID: p.UID, Namespace: p.Namespace, Name: p.Name, CreationTimestamp: p.CreationTimestamp,
			DeletionTimestamp: p.DeletionTimestamp,
		},
		Spec: v1.PodSpec{
			NodeName: p.Spec.NodeName, OS: p.Spec.OS, HostNetwork: p.Spec.HostNetwork,
			HostIPC: p.Spec.HostIPC, RestartPolicy: p.Spec.RestartPolicy,
			PriorityClassName: p.Spec.PriorityClassName, Priority: p.Spec.Priority,
			PreemptionPolicy:              p.Spec.PreemptionPolicy,
			TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
		},
		Status: v1.PodStatus{Phase: p.Status.Phase, QOSClass: p.Status.QOSClass},
	}
	if owner := metav1.GetControllerOf(p); owner != nil {
		out.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	if len(p.Status.Reason) <= leastAnnotation {
		out.Status.Reason = p.Status.Reason
	}
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		if value := p.Annotations[key]; IsKeptAnnotation(key) && len(key)+len(value) <= leastAnnotation &&
			len(out.Annotations) < leastAnnotations {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, value)
		}
	}
	return out
}

// FitOne returns a trimmed pod, or its Minimal form if it is too large.
func FitOne(p *v1.Pod) *v1.Pod {
	if Size(p) > fitOne {
		return Minimal(p)
	}
	return p
}

// Reduction counts the reductions of Fit.
type Reduction struct {
	Minimal int // pods reduced by Minimal to save memory
	Dropped int // pods left out
}

// Fit reduces trimmed pods to FitPods and FitMemory, in the same order. Without it, one author
// could make a store reject the whole list, because an API server accepts any size. The largest are
// reduced by Minimal first. Then ended pods are left out, and then the youngest. It changes none of
// the given pods.
func Fit(all []*v1.Pod) (fit []*v1.Pod, did Reduction) {
	fit = make([]*v1.Pod, 0, len(all))
	for _, p := range all {
		fit = append(fit, FitOne(p))
	}
	fit = leaveOut(fit, len(fit)-FitPods, 0)
	memory, less := minimizeLargest(fit)
	fit = leaveOut(fit, 0, memory-FitMemory)
	return fit, Reduction{Minimal: less, Dropped: len(all) - len(fit)}
}

// leaveOut removes at least n pods and so many bytes.
func leaveOut(all []*v1.Pod, n, bytes int) []*v1.Pod {
	if n <= 0 && bytes <= 0 {
		return all
	}
	running := func(p *v1.Pod) int {
		if p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded {
			return 0
		}
		return 1
	}
	leave := map[*v1.Pod]bool{}
	for _, p := range slices.SortedStableFunc(slices.Values(all), func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(running(a), running(b)),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time))
	}) {
		if n <= 0 && bytes <= 0 {
			break
		}
		leave[p] = true
		n, bytes = n-1, bytes-Size(p)
	}
	return slices.DeleteFunc(all, func(p *v1.Pod) bool { return leave[p] })
}

// minimizeLargest reduces the largest pods by Minimal until all fit, or all are reduced. It returns
// the memory of all, and the number of reduced pods.
func minimizeLargest(all []*v1.Pod) (memory, less int) {
	sizes, largest := make([]int, len(all)), make([]int, len(all))
	for i, p := range all {
		sizes[i], largest[i] = Size(p), i
		memory += sizes[i]
	}
	slices.SortStableFunc(largest, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })
	for _, i := range largest {
		if memory <= FitMemory {
			break
		}
		all[i] = Minimal(all[i])
		memory -= sizes[i] - Size(all[i])
		less++
	}
	return memory, less
}
