package admit

import (
	"slices"
	"time"
	"unique"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/stats"
)

// Held is a pod that holds resources of the node, reduced to the values that decisions need. HeldBy
// computes it from a pod object. For a pod without one the caller copies the fields that the
// runtime reports.
type Held struct {
	UID             types.UID
	Namespace, Name string
	Controller      types.UID      // of the pod's controller; empty: none, or unknown
	QOS             stats.QOSClass // empty: unknown, and the pod is never a victim
	Priority        stats.Opt[int32]
	Static          bool // static or mirror: critical, and never a victim
	// Protected: never a victim, regardless of priority; the caller decides why.
	Protected bool
	// Ending: the pod is being killed. It holds its resources until NodeState no longer contains it,
	// and no other pod is preempted for resources that it will free. A pod that does not die must be
	// Protected instead.
	Ending bool
	// Reserved: the pod does not run; its resources are reserved (Reservations).
	Reserved bool
	// Pending: ending pods still hold the reserved resources, or a part of them.
	Pending bool
	// Promised: a client received the answer that the pod fits, so no other pod of its controller may
	// use the reservation.
	Promised bool
	Created  time.Time // zero: unknown, which sorts before all known times
	Requests Amounts
	// CertainRequests is the part of Requests that killing the pod certainly frees, if the rest is
	// known only from an untrusted source; nil: all of Requests.
	CertainRequests Amounts
	Ports           []Port
}

// Port is a host port. IP 0.0.0.0 stands for all addresses. Its strings are handles, which are as
// cheap as numbers to compare and to look up: a decision visits each port of the node, and clients
// may send tens of thousands of ports.
type Port struct {
	IP, Protocol unique.Handle[string]
	Port         int32
}

func newPort(ip string, protocol v1.Protocol, port int32) Port {
	return Port{unique.Make(ip), unique.Make(string(protocol)), port}
}

// HeldBy computes the resources that a pod holds. It does not keep the pod object. Results for a
// prepared pod share Requests and Ports, which the caller must not change.
func HeldBy(p PodAttributes) Held { return p.preparedOrNew().held }

func prepare(p PodAttributes) *preparedPod {
	pod := stored(p)
	out := Held{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name,
		QOS:      stats.QOSOf(pod),
		Static:   static(pod),
		Ending:   pod.DeletionTimestamp != nil,
		Created:  pod.CreationTimestamp.Time,
		Requests: requests(pod),
		Ports:    hostPorts(pod),
	}
	if c := metav1.GetControllerOfNoCopy(pod); c != nil && c.Kind != "Node" { // of a mirror pod
		out.Controller = c.UID
	}
	if pod.Spec.Priority != nil {
		out.Priority = stats.Some(*pod.Spec.Priority)
	}
	return &preparedPod{pod: pod, held: out}
}

// Critical reports whether the pod is critical: it may preempt others, and only a more critical pod
// preempts it (pkg/kubelet/types/pod_update.go IsCriticalPod).
func (h *Held) Critical() bool {
	return h.Static || h.Priority.OK && h.Priority.V >= systemCriticalPriority
}

// others returns the pods and reservations that the incoming pod must fit next to. It omits:
//
//   - the pod itself (pkg/kubelet/allocation/allocation_manager.go canAdmitPod);
//   - reservations of an earlier attempt at a critical pod (Held.PassesTo);
//   - reservations of pods that it outranks;
//   - pending reservations, if the pod has one that is not: it fits next to the ending pods;
//   - reservations of pods that are already on the node, so that these count once.
func (n *NodeState) others(incoming *incomingPod) []*Held {
	out := make([]*Held, 0, len(n.Pods)+len(n.Reservations))
	settled := n.settled(incoming)
	for i := range n.Pods {
		if h := &n.Pods[i]; incoming.UID == "" || h.UID != incoming.UID {
			out = append(out, h)
		}
	}
	for i := range n.Reservations {
		h := &n.Reservations[i]
		if (incoming.UID == "" || h.UID != incoming.UID) && !incoming.mayUseReservation(h) &&
			!n.hasPod(h.UID) && !(settled && h.Pending) {
			out = append(out, h)
		}
	}
	return out
}

// settled reports whether all that the pod requests is reserved for it, or for an earlier attempt, and
// free.
func (n *NodeState) settled(incoming *incomingPod) bool {
	if !critical(incoming.Pod) {
		return false
	}
	rank := incoming.rank()
	return slices.ContainsFunc(n.Reservations, func(h Held) bool {
		if !h.Reserved || h.Pending || (h.UID == "" || h.UID != incoming.UID) && !h.PassesTo(rank) {
			return false
		}
		for name, amount := range incoming.requests {
			if amount > h.Requests[name] {
				return false
			}
		}
		return true
	})
}

// hasName reports whether the pod has this namespace and name, which at most one pod has at a time.
func (h *Held) hasName(namespace, name string) bool {
	return name != "" && h.Name == name && h.Namespace == namespace
}

func (n *NodeState) hasPod(uid types.UID) bool {
	for i := range n.Pods {
		if n.Pods[i].UID == uid {
			return uid != ""
		}
	}
	return false
}
