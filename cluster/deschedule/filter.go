package deschedule

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"jettison/cluster/model"
)

// selectorOrAll converts a label selector; nil selects everything.
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

// filter returns a function that reports whether a strategy considers a pod. The selector was
// validated before; an invalid one matches nothing.
func (s *Selected) filter() func(*model.Pod) bool {
	selector, err := selectorOrAll(s.LabelSelector)
	if err != nil {
		selector = labels.Nothing()
	}
	return func(p *model.Pod) bool {
		return s.Namespaces.match(p.Namespace) && selector.Matches(labels.Set(p.Labels))
	}
}

func hasOwnerKind(p *model.Pod, kinds []string) bool {
	return slices.ContainsFunc(p.OwnerReferences,
		func(o metav1.OwnerReference) bool { return slices.Contains(kinds, o.Kind) })
}

// statuses returns the statuses of a pod's containers, optionally with init and ephemeral
// containers. The result may share the pod's slice: callers must not change it.
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

// waitingReason returns the first reason in reasons for which a container waits; empty: none.
func waitingReason(containers []v1.ContainerStatus, reasons []string) string {
	for i := range containers {
		if w := containers[i].State.Waiting; w != nil && slices.Contains(reasons, w.Reason) {
			return w.Reason
		}
	}
	return ""
}

// terminatedReason returns the first reason in reasons for which a container terminated; empty:
// none.
func terminatedReason(containers []v1.ContainerStatus, reasons []string) string {
	for i := range containers {
		if t := containers[i].State.Terminated; t != nil && slices.Contains(reasons, t.Reason) {
			return t.Reason
		}
	}
	return ""
}

// terminatedWith returns the first container that terminated with one of the exit codes; nil:
// none.
func terminatedWith(containers []v1.ContainerStatus, codes []int32) *v1.ContainerStateTerminated {
	for i := range containers {
		if t := containers[i].State.Terminated; t != nil && slices.Contains(codes, t.ExitCode) {
			return t
		}
	}
	return nil
}
