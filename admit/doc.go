// Package admit decides on the admission of new pods to a node, like a kubelet before it runs a
// pod. It checks the conditions of the node, the free resources, and whether the pod fits the
// node's labels, name, ports and taints. For a critical pod it plans the preemption of other pods.
// It is pure: it reads no files, does not block, keeps no state and uses no clock.
//
//	f := admit.Failures(pod, node)       all reasons against the pod, in the kubelet's order; none:
//	                                     the pod is admitted
//	r := admit.Admit(pod, node)          the decision, with the first of these reasons
//	plan, r := admit.Preempt(pod, node)  the victims for a critical pod; after the kills
//	                                     r = plan.Outcome(pod, nodeNow, kills)
//
//	reserved.go      Allocatable, Enforced: the capacity that remains for pods
//	pressure.go      UnderPressure: the decision by the node's conditions
//	admit.go         PodAttributes, NodeState, Failures, Admit: the order of the checks
//	stored.go        defaults and validation that an API server would apply to a pod
//	podresources.go  Held: a pod that holds resources
//	reservation.go   Reservations: resources reserved for pods that do not run yet
//	request.go       Amounts: the requests of a pod, in whole numbers
//	fit.go           whether the requests fit
//	place.go         labels, names, host ports, taints
//	support.go       the operating system, groups
//	sysctl.go        sysctls
//	apparmor.go      AppArmor
//	preempt.go       Plan: the victims for a critical pod, and the decision after the kills
//	victims.go       the kubelet's choice of victims
//
// An unknown fact of the node rejects no pod: a nil map of labels, a resource that Allocatable does
// not list, an unknown state of AppArmor. The facts of the pod come from its object. In an object
// written by a client, fields that only the node may set are ignored.
//
// Differences from the kubelet (v1.37.2):
//
//   - All reasons of all handlers are listed; the first is the kubelet's. A critical pod that does
//     not fit and is rejected for another reason as well preempts no pod. The kubelet preempts
//     before it runs the later handlers.
//   - Requests are always counted in the same way. To choose victims, the kubelet ignores the
//     containers' requests of a pod with pod-level requests, and the overhead of a pod without
//     requests (pkg/api/v1/resource/helpers.go). Its victims may free more, or less, than it
//     counted.
//   - Sums saturate at the largest int64. The kubelet's sums wrap, so that two containers that
//     request 8Ei each count as no request.
//   - A victim that did not die still holds its resources, so the critical pod is rejected, with
//     the reason. The kubelet admits the critical pod.
//   - Pods that are already being killed count as victims without cost. A victim is removed from
//     the plan if the others suffice. Static and mirror pods are never victims, because their
//     manifest recreates them. Among equal pods the youngest is the victim.
//   - One snapshot of the node is used for all checks. The kubelet reads its Node object again if
//     only the affinity rejects a pod.
//   - Not checked: resize, device, CPU, memory and topology managers, features that nodes declare,
//     and resources of claims.
package admit
