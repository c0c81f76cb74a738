package admit

import (
	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

// Result is the answer for one pod.
type Result struct {
	Admit bool
	// Reason and Message of the pod's status, whose phase becomes Failed; empty where it is admitted.
	// The kubelet puts "Pod was rejected: " before the message in the status, and not in the event
	// (pkg/kubelet/kubelet.go rejectPod).
	Reason, Message string
}

// PodAttributes is the pod that asks to be taken.
type PodAttributes struct {
	// Pod is its object, which is not changed. Of a pod that only the runtime told of, what is known:
	// names, UID, class, requests.
	Pod *v1.Pod
	// Manifest: root wrote the object, a static pod's manifest. Only then it may say that the pod is
	// static, or a mirror.
	Manifest bool
	// Doubted: its priority is known by the word of somebody who may not take room from others by it.
	// It outranks none for whom room is kept.
	Doubted bool

	made *made // by Prepared; nil: not yet
}

// made is what each decision on a pod takes of its object. It is not changed.
type made struct {
	pod  *v1.Pod // in the form in which it would be stored
	held Held
}

// Prepared has made once what each decision on the pod needs, for who asks several: its requests
// cost more than the rest of a decision. The pod's object is not changed any more.
func Prepared(p PodAttributes) PodAttributes {
	p.made = madeOf(p)
	return p
}

// forms is what Prepared has made, or makes it.
func (p *PodAttributes) forms() *made {
	if p.made != nil {
		return p.made
	}
	return madeOf(*p)
}

// asking is a pod that asks, in the form in which it would be stored.
type asking struct {
	*v1.Pod
	requests Amounts
	ports    []Port
	doubted  bool
}

func askingOf(p PodAttributes) *asking {
	m := p.forms()
	return &asking{m.pod, m.held.Requests, m.held.Ports, p.Doubted}
}

// NodeState is what a decision takes of the node. It is not changed, so one snapshot serves many.
// What is absent is unknown, and refuses nothing.
type NodeState struct {
	Name   string            // empty: unknown
	Labels map[string]string // nil: unknown; Labels makes them
	Taints []v1.Taint        // only NoExecute ones count
	// Conditions that are true, of MemoryPressure, DiskPressure and PIDPressure.
	Conditions []string
	// Allocatable is what the node has for pods: cpu, memory, ephemeral-storage, pods, hugepages-*,
	// extended resources. One that it does not name is not counted. The kubelet takes that for 0, but
	// for extended resources.
	Allocatable v1.ResourceList
	// Pods that hold room: all that are not over, those that are being killed included, each once.
	Pods []Held
	// Promised is room that is kept for pods which do not run yet. It is taken for all pods but these.
	Promised []Held

	Sysctls            *Sysctls        // nil: unknown
	AppArmor           stats.Opt[bool] // whether the kernel enforces it
	SupplementalGroups stats.Opt[bool] // whether the runtime knows supplementalGroupsPolicy
	ShuttingDown       bool
}

// Failure is one reason for which a pod is refused, in the kubelet's words.
type Failure struct {
	Reason, Message string
	// Short is the room that is missing; nil: the reason is another.
	Short *Shortage
}

// Reasons of no handler in particular (pkg/kubelet/lifecycle/predicate.go).
const (
	// ReasonUnexpected is why a pod is refused that cannot be judged, or for which room could not be
	// made.
	ReasonUnexpected = "UnexpectedAdmissionError"
	// ReasonShutdown is why no pod is taken any more
	// (pkg/kubelet/nodeshutdown/nodeshutdown_manager.go).
	ReasonShutdown = "NodeShutdown"
)

// Admit decides on a pod. It only looks: a critical pod for which there is no room is refused;
// Preempt says how to make some.
func Admit(p PodAttributes, n NodeState) Result { return first(Failures(p, n)) }

func first(failures []Failure) Result {
	if len(failures) == 0 {
		return Result{Admit: true}
	}
	return Result{Reason: failures[0].Reason, Message: failures[0].Message}
}

// Failures are all that speaks against a pod, in the order of the kubelet's handlers
// (pkg/kubelet/kubelet.go NewMainKubelet), so that the first is what the kubelet reports. None: the
// pod is taken. Room is no reason against a critical pod as long as there is another
// (pkg/kubelet/preemption/preemption.go HandleAdmissionFailure).
func Failures(p PodAttributes, n NodeState) []Failure {
	if err := Invalid(p.Pod); err != nil {
		return []Failure{{Reason: ReasonUnexpected, Message: err.Error()}}
	}
	return failures(askingOf(p), &n)
}

func failures(p *asking, n *NodeState) (out []Failure) {
	pod, others := p.Pod, n.others(p)
	if r := UnderPressure(n.Conditions, pod); !r.Admit {
		out = append(out, Failure{Reason: r.Reason, Message: r.Message})
	}
	out = n.Sysctls.forbid(out, pod)
	out = unsupported(out, pod, n)
	short := shortages(p.requests, others, n)
	rest := misplaced(nil, p, others, n)
	rest = unconfined(rest, pod, n)
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
