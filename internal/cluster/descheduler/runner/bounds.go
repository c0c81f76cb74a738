package runner

import (
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"jettison/cluster/taint"
	"jettison/internal/cluster/tolerations"
)

// Tenants may make each list of a pod as long as the API server stores objects: 1.5 MiB, of which a
// decoded pod uses up to 30 MiB. A pod with a larger cost than maxPodCost is incomplete: the
// informers keep only its node, its priority and its requests, and the pod stays. It does not count
// for the constraints of other pods.
//
// The cost is the encoded size, plus itemCost for each item of lists whose items are large in
// memory. Decoded, a pod uses at most about eight times as much.
const (
	maxPodCost = 16 << 10
	itemCost   = 64
)

// incompleteReason is the reason to keep an incomplete pod.
const incompleteReason = "pod has more than 16Ki of labels, owners, scheduling terms, volumes " +
	"and containers, or 2Ki of tolerations: too large to plan for"

func cost(p *v1.Pod) int {
	s, status := &p.Spec, &p.Status
	items := len(p.OwnerReferences) + len(s.Containers) + len(s.InitContainers) + len(s.Volumes) +
		len(s.TopologySpreadConstraints) + len(s.ResourceClaims) + len(status.Conditions) +
		len(status.ContainerStatuses) + len(status.InitContainerStatuses) +
		len(status.EphemeralContainerStatuses)
	if a := s.Affinity; a != nil {
		if in := a.PodAffinity; in != nil {
			items += len(in.RequiredDuringSchedulingIgnoredDuringExecution) +
				len(in.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if in := a.PodAntiAffinity; in != nil {
			items += len(in.RequiredDuringSchedulingIgnoredDuringExecution) +
				len(in.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	return p.Size() + items*itemCost
}

// bound removes what a trimmed pod must not keep.
func bound(p *v1.Pod) {
	kept, ok := keptTolerations(p.Spec.Tolerations)
	if !ok {
		makeIncomplete(p)
		return
	}
	if p.Spec.Tolerations = kept; cost(p) > maxPodCost {
		makeIncomplete(p)
	}
}

// keptTolerations returns the tolerations that decide where a pod fits; false: too many to keep.
// Their periods do not matter there.
func keptTolerations(all []v1.Toleration) ([]v1.Toleration, bool) {
	if taint.Unread(all) {
		return all, true
	}
	out, ok := tolerations.Kept(all, func(*v1.Toleration) bool { return true },
		func(earlier, later *v1.Toleration) bool {
			if earlier.Effect != "" && earlier.Effect != later.Effect {
				return false
			}
			exists := earlier.Operator == v1.TolerationOpExists
			return exists && (earlier.Key == "" || earlier.Key == later.Key) ||
				earlier.Key == later.Key && earlier.Operator == later.Operator && earlier.Value == later.Value
		})
	for i := range out {
		out[i].TolerationSeconds = nil
	}
	return filtered(out, nil), ok
}

// maxResources limits the resources that are kept of an incomplete pod. Of a pod with more, only
// the resources that each node has are kept.
const maxResources = 16

// makeIncomplete removes all lists of a pod and marks it.
func makeIncomplete(p *v1.Pod) {
	requests := v1.ResourceList{}
	limitResources(p)
	for name, q := range resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}) {
		requests[name] = q.DeepCopy()
	}
	p.Labels, p.Annotations, p.OwnerReferences, p.Finalizers = nil, nil, nil, nil
	p.Spec = v1.PodSpec{NodeName: p.Spec.NodeName, Priority: p.Spec.Priority,
		Tolerations: []v1.Toleration{{Operator: taint.OperatorUnread}},
		Containers:  []v1.Container{{Resources: v1.ResourceRequirements{Requests: requests}}}}
	p.Status = v1.PodStatus{Phase: p.Status.Phase, QOSClass: p.Status.QOSClass,
		StartTime: p.Status.StartTime}
}

// limitResources removes requests of other resources than those that each node has if a pod
// requests more than maxResources. The time to sum them up could grow with their square.
func limitResources(p *v1.Pod) {
	lists := []v1.ResourceList{p.Spec.Overhead}
	if p.Spec.Resources != nil {
		lists = append(lists, p.Spec.Resources.Requests)
	}
	for _, containers := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			lists = append(lists, containers[i].Resources.Requests)
		}
	}
	names := map[v1.ResourceName]bool{}
	for _, list := range lists {
		for name := range list {
			names[name] = true
		}
	}
	if len(names) <= maxResources {
		return
	}
	for _, list := range lists {
		for name := range list {
			if name != v1.ResourceCPU && name != v1.ResourceMemory && name != v1.ResourceEphemeralStorage {
				delete(list, name)
			}
		}
	}
}

// boundSelector makes a budget with a selector that is too large to keep cover its whole namespace.
func boundSelector(b *policyv1.PodDisruptionBudget) {
	if b.Spec.Selector != nil && b.Spec.Selector.Size() > maxPodCost {
		b.Spec.Selector = &metav1.LabelSelector{}
	}
}

// incomplete returns the incomplete pods, with the reason to keep them.
func incomplete(pods []*v1.Pod) map[types.UID]string {
	out := map[types.UID]string{}
	for _, p := range pods {
		if taint.Unread(p.Spec.Tolerations) {
			out[p.UID] = incompleteReason
		}
	}
	return out
}
