// Package admit decides which new pods a node takes, as a kubelet does before it runs one: the
// conditions of the node, room for what the pod requests, and whether the node is the one that the
// pod asks for. For a critical pod it says which others must go to make that room. It is pure:
// plain values in, a value out. Nothing is read, waited for or kept, and there is no clock.
//
//	f := admit.Failures(pod, node) all that speaks against the pod, in the kubelet's order; none: it
//	  is taken
//	r := admit.Admit(pod, node)             the first of these, which is the answer
//	plan, r := admit.Preempt(pod, node) who must go for a critical pod; ...; r = plan.Outcome(pod,
//	      nodeNow, kills)
//
//	reserved.go  Allocatable, Enforced: what of a node's capacity is pods'
//	pressure.go  UnderPressure: what a node's conditions say of a pod, and whether one that runs
//	             nowhere yet is BestEffort
//	admit.go     PodAttributes, NodeState, Failures, Admit: the order of the questions
//	stored.go    a pod as an API server would have stored it; what no API server would have taken
//	held.go      Held: a pod that takes room
//	promise.go   Promises: room that is kept for pods that do not run yet; who outranks one
//	request.go   Amounts: what a pod requests, in whole numbers
//	fit.go       whether there is room
//	place.go     labels, names, host ports, taints
//	support.go   what the node can do: the operating system, groups; sysctl.go: sysctls; apparmor.go:
//	             AppArmor
//	preempt.go   Plan: who must go for a critical pod, and what must be true afterwards; choose.go:
//	             the kubelet's choice
//
// What is not known of the node refuses nothing: a nil map of labels, a resource that Allocatable
// does not name, an AppArmor that was not looked for. What is known of the pod is its object; where
// a client wrote it, what only the node may say of a pod does not count.
//
// It differs from the kubelet (v1.36.3) in this:
//
//   - Every reason is listed, of all handlers; the first is the kubelet's. A critical pod that
//     lacks room and is refused for another reason as well costs no pod its life, whichever handler
//     that reason is of: the kubelet preempts before it asks the later ones.
//   - Room is counted in one way. The kubelet preempts by requests that forget the containers'
//     where the pod has some of its own, and the overhead where there is no request
//     (pkg/api/v1/resource/helpers.go): such a victim would return more, or less, than was counted.
//   - Sums stay at the greatest number there is. The kubelet's wrap, and two containers that
//     request 8Ei each request nothing.
//   - A victim that did not die keeps its room, so the critical pod is refused, with the reason;
//     the kubelet takes it.
//   - Pods that are being killed already count as victims that cost nothing. A victim without whom
//     the others suffice is spared. Static and mirror pods are never victims, for their manifest
//     brings them back. Among equals the youngest goes.
//   - One state of the node is asked, once. The kubelet reads its Node object again where only the
//     affinity speaks against a pod.
//   - Not asked at all: resize, device, CPU, memory and topology managers, features that nodes
//     declare, and resources of claims.
package admit
