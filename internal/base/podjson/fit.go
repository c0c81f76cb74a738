package podjson

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of all pods of a node together, as Fit leaves them. FitMemory is of Size, and such that
// all may be put anew beside all that are known.
const (
	FitPods   = 2000
	FitMemory = 5 << 20
	// fitOne is of one pod. As JSON a text takes up to six times as much, and that is less than
	// MaxPod.
	fitOne = 160 << 10
)

// What Least keeps of annotations that decide, so many and each of so many bytes.
const (
	leastAnnotations = 8
	leastAnnotation  = 256
)

// Least is what of a trimmed pod says who it is, how much it counts and whether it has ended, and
// nothing that its author makes as large as he likes. What it requests is unknown then, which
// counts as nothing: it is a victim the sooner.
func Least(p *v1.Pod) *v1.Pod {
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
		if value := p.Annotations[key]; Keeps(key) && len(key)+len(value) <= leastAnnotation &&
			len(out.Annotations) < leastAnnotations {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, value)
		}
	}
	return out
}

// FitOne is a trimmed pod, or Least of one that is too large.
func FitOne(p *v1.Pod) *v1.Pod {
	if Size(p) > fitOne {
		return Least(p)
	}
	return p
}

// Fitted says what Fit has done.
type Fitted struct {
	Less int // pods of which no more than Least is left, for there is no room for all
	Left int // pods that are left out
}

// Fit has trimmed pods be no more than FitPods, of no more than FitMemory, in their order: who
// takes all of them or none is not to be made to take none by one author, from whom an API server
// takes as much as he likes. The largest become Least first. Those that have ended are left out
// first, and then the youngest. It changes none of them.
func Fit(all []*v1.Pod) (fit []*v1.Pod, did Fitted) {
	fit = make([]*v1.Pod, 0, len(all))
	for _, p := range all {
		fit = append(fit, FitOne(p))
	}
	fit = leaveOut(fit, len(fit)-FitPods, 0)
	memory, less := lessen(fit)
	fit = leaveOut(fit, 0, memory-FitMemory)
	return fit, Fitted{Less: less, Left: len(all) - len(fit)}
}

// leaveOut leaves out so many pods, and so many bytes.
func leaveOut(all []*v1.Pod, n, bytes int) []*v1.Pod {
	if n <= 0 && bytes <= 0 {
		return all
	}
	ended := func(p *v1.Pod) int {
		if p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded {
			return 0
		}
		return 1
	}
	leave := map[*v1.Pod]bool{}
	for _, p := range slices.SortedStableFunc(slices.Values(all), func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(ended(a), ended(b)),
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

// lessen makes the largest of some pods Least until all fit, or all are. It returns how many, and
// how much memory all take.
func lessen(all []*v1.Pod) (memory, less int) {
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
		all[i] = Least(all[i])
		memory -= sizes[i] - Size(all[i])
		less++
	}
	return memory, less
}
