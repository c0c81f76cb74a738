package deschedule

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"jettison/cluster/model"
)

// selectorOrAll: a selector that is not there selects everything.
func selectorOrAll(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

func (n *Namespaces) match(namespace string) bool {
	switch {
	case n == nil:
		return true
	case len(n.Include) > 0 && !slices.Contains(n.Include, namespace):
		return false
	}
	return !slices.Contains(n.Exclude, namespace)
}

// filter of the pods that a strategy looks at. The selector has been checked.
func (s *Selected) filter() func(*model.Pod) bool {
	selector, err := selectorOrAll(s.LabelSelector)
	if err != nil {
		selector = labels.Nothing()
	}
	return func(p *model.Pod) bool {
		return s.Namespaces.match(p.Namespace) && selector.Matches(labels.Set(p.Labels))
	}
}

func ownerKind(p *model.Pod, kinds []string) bool {
	return slices.ContainsFunc(p.OwnerReferences,
		func(o metav1.OwnerReference) bool { return slices.Contains(kinds, o.Kind) })
}

// statuses of a pod's containers, and of others where they count too. They are the pod's own where
// there are no others.
func statuses(p *model.Pod, init, ephemeral bool) []v1.ContainerStatus {
	out := slices.Clip(p.Status.ContainerStatuses)
	if init {
		out = append(out, p.Status.InitContainerStatuses...)
	}
	if ephemeral {
		out = append(out, p.Status.EphemeralContainerStatuses...)
	}
	return out
}

// waiting is the first reason among some for which a container waits, ended the first for which one
// has ended; empty: none.
func waiting(containers []v1.ContainerStatus, among []string) string {
	for i := range containers {
		if w := containers[i].State.Waiting; w != nil && slices.Contains(among, w.Reason) {
			return w.Reason
		}
	}
	return ""
}

func ended(containers []v1.ContainerStatus, among []string) string {
	for i := range containers {
		if t := containers[i].State.Terminated; t != nil && slices.Contains(among, t.Reason) {
			return t.Reason
		}
	}
	return ""
}

// exited is the container that has ended with one of some exit codes; nil: none.
func exited(containers []v1.ContainerStatus, codes []int32) *v1.ContainerStateTerminated {
	for i := range containers {
		if t := containers[i].State.Terminated; t != nil && slices.Contains(codes, t.ExitCode) {
			return t
		}
	}
	return nil
}
