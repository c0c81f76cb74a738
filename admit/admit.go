package admit

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/stats"
)

// Result is the decision on one pod.
type Result struct {
	Admit bool
	// Reason and Message for the pod's status with phase Failed; empty for an admitted pod. The
	// kubelet prefixes the message with "Pod was rejected: " in the status, but not in the event
	// (pkg/kubelet/kubelet.go rejectPod).
	Reason, Message string
}

// PodAttributes describes the pod to admit.
type PodAttributes struct {
	// Pod is the pod object. It is not changed. For a pod that only the runtime reports it holds the
	// known fields: names, UID, class, requests.
	Pod *v1.Pod
	// Manifest: root wrote the object as a static pod's manifest. Only then may its annotations mark
	// the pod as static or mirror, and no API server has completed its pod-level resources.
	Manifest bool
	// UntrustedPriority: the priority comes from a source that may not take resources from other
	// pods. The pod outranks no pod with a reservation.
	UntrustedPriority bool

	prepared *preparedPod // set by Prepared
}

// StoredObject returns the attributes of an object that the agent stores. Only objects from
// manifests keep the source annotation there, which marks a static pod.
func StoredObject(object *v1.Pod) PodAttributes {
	_, manifest := object.Annotations[annotationSource]
	return PodAttributes{Pod: object, Manifest: manifest}
}

// preparedPod holds the values that each decision derives from a pod object. It is not changed.
type preparedPod struct {
	pod  *v1.Pod // in the form in which it would be stored
	held Held
}

// Prepared returns p with the derived values computed, for callers that make several decisions on
// one pod: computing the requests costs more than the rest of a decision. The caller must not
// change the pod object afterwards.
func Prepared(p PodAttributes) PodAttributes {
	p.prepared = prepare(p)
	return p
}

// preparedOrNew returns the values computed by Prepared, or computes them.
func (p *PodAttributes) preparedOrNew() *preparedPod {
	if p.prepared != nil {
		return p.prepared
	}
	return prepare(*p)
}

// incomingPod is the pod to admit, in the form in which an API server would store it.
type incomingPod struct {
	*v1.Pod
	controller        types.UID
	requests          Amounts
	ports             []Port
	untrustedPriority bool
}

func incoming(p PodAttributes) *incomingPod {
	m := p.preparedOrNew()
	return &incomingPod{m.pod, m.held.Controller, m.held.Requests, m.held.Ports, p.UntrustedPriority}
}

// NodeState is a snapshot of the node. It is not changed, so concurrent decisions may share it. An
// absent value is unknown and rejects no pod.
type NodeState struct {
	Name   string            // empty: unknown
	Labels map[string]string // from Labels; nil: unknown
	Taints []v1.Taint        // only taints with effect NoExecute are used
	// Conditions that are true, of MemoryPressure, DiskPressure and PIDPressure.
	Conditions []string
	// Allocatable is the capacity for pods: cpu, memory, ephemeral-storage, pods, hugepages-*,
	// extended resources. A resource that is not listed is not checked. The kubelet treats a missing
	// resource as 0, unless it is an extended resource.
	Allocatable v1.ResourceList
	// Pods that hold resources: all pods that have not terminated, including those being killed, each
	// once.
	Pods []Held
	// Reservations are the reservations for pods that do not run yet. Other pods cannot use them.
	Reservations []Held

	Sysctls            *Sysctls        // nil: unknown
	AppArmor           stats.Opt[bool] // whether the kernel has AppArmor enabled
	SupplementalGroups stats.Opt[bool] // whether the runtime supports supplementalGroupsPolicy
	ShuttingDown       bool
}

// Failure is one reason to reject a pod, in the kubelet's words.
type Failure struct {
	Reason, Message string
	// Short is the missing resource; nil: the pod is rejected for another reason.
	Short *Shortage
}

// Reasons that do not belong to one check (pkg/kubelet/lifecycle/predicate.go).
const (
	// ReasonUnexpected rejects an invalid pod, and a critical pod after a failed preemption.
	ReasonUnexpected = "UnexpectedAdmissionError"
	// ReasonShutdown rejects all pods while the node shuts down
	// (pkg/kubelet/nodeshutdown/nodeshutdown_manager.go).
	ReasonShutdown = "NodeShutdown"
)

// Admit decides on a pod without preemption: it rejects a critical pod that does not fit. Preempt
// plans a preemption for it.
func Admit(p PodAttributes, n NodeState) Result { return first(Failures(p, n)) }

func first(failures []Failure) Result {
	if len(failures) == 0 {
		return Result{Admit: true}
	}
	return Result{Reason: failures[0].Reason, Message: failures[0].Message}
}

// Failures returns all reasons to reject a pod, in the order of the kubelet's handlers
// (pkg/kubelet/kubelet.go NewMainKubelet): the kubelet reports the first. The result is empty for
// an admitted pod. For a critical pod, missing resources are listed only if there is no other
// reason (pkg/kubelet/preemption/preemption.go HandleAdmissionFailure).
func Failures(p PodAttributes, n NodeState) []Failure {
	if err := Invalid(p.Pod); err != nil {
		return []Failure{{Reason: ReasonUnexpected, Message: err.Error()}}
	}
	return failures(incoming(p), &n)
}

func failures(p *incomingPod, n *NodeState) (out []Failure) {
	pod, others := p.Pod, n.others(p)
	if r := UnderPressure(n.Conditions, pod); !r.Admit {
		out = append(out, Failure{Reason: r.Reason, Message: r.Message})
	}
	out = n.Sysctls.appendForbidden(out, pod)
	out = appendUnsupported(out, pod, n)
	short := shortages(p.requests, others, n)
	rest := appendPlacementFailures(nil, p, others, n)
	rest = appendUnconfined(rest, pod, n)
	if n.ShuttingDown {
		rest = append(rest, Failure{Reason: ReasonShutdown,
			Message: "Pod was rejected as the node is shutting down."})
	}
	if !critical(pod) || len(out)+len(rest) == 0 {
		for i := range short {
			out = append(out, short[i].failure())
		}
	}
	return append(out, rest...)
}
