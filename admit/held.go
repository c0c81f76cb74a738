package admit

import (
	"time"
	"unique"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/stats"
)

// Held is a pod that holds room on the node: all that decisions take of it, made once. HeldBy makes
// it of an object; of a pod that only the runtime knows, it is what the runtime tells.
type Held struct {
	UID             types.UID
	Namespace, Name string
	QOS             stats.QOSClass // empty: unknown, and the pod is never a victim
	Priority        stats.Opt[int32]
	Static          bool // static or mirror: it is critical, and never a victim
	// Spared: it is never a victim, whatever its priority; the caller knows why.
	Spared bool
	// Ending: it is being killed. Its room is taken until it is gone from the state, and nobody else
	// goes for room that it will give back. One that will not die is not ending; it is spared.
	Ending bool
	// Kept: its room is a promise (Promises), and it does not run.
	Kept     bool
	Created  time.Time // zero: unknown, which counts as older than any
	Requests Amounts
	// Surely is what of Requests its end gives back, where somebody else's word is not enough to kill
	// for the rest; nil: all of it.
	Surely Amounts
	Ports  []Port
}

// Port is one of the host's. An IP of 0.0.0.0 is all of them. Its texts are handles, which are
// compared, and looked up in a map, as numbers are: a decision looks at each port of the node, and
// clients may say tens of thousands.
type Port struct {
	IP, Protocol unique.Handle[string]
	Port         int32
}

func newPort(ip string, protocol v1.Protocol, port int32) Port {
	return Port{unique.Make(ip), unique.Make(string(protocol)), port}
}

// HeldBy takes what it needs of a pod's object, which it does not keep. Of what is prepared, all
// who ask share the requests and the ports, which are for reading.
func HeldBy(p PodAttributes) Held { return p.forms().held }

func madeOf(p PodAttributes) *made {
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
	if pod.Spec.Priority != nil {
		out.Priority = stats.Some(*pod.Spec.Priority)
	}
	return &made{pod: pod, held: out}
}

// Critical: it may have others killed for its room, and goes for none but a more critical one
// (pkg/kubelet/types/pod_update.go IsCriticalPod).
func (h *Held) Critical() bool {
	return h.Static || h.Priority.OK && h.Priority.V >= systemCriticalPriority
}

// others are the pods that hold room beside the one that asks: its own room is not in its way
// (pkg/kubelet/allocation/allocation_manager.go canAdmitPod), nor is what was promised to an
// earlier attempt at a critical pod, which was given another UID then, or to one that it outranks.
// What was promised to a pod that is there already counts once.
func (n *NodeState) others(asking *asking) []*Held {
	out := make([]*Held, 0, len(n.Pods)+len(n.Promised))
	for i := range n.Pods {
		if h := &n.Pods[i]; asking.UID == "" || h.UID != asking.UID {
			out = append(out, h)
		}
	}
	for i := range n.Promised {
		h := &n.Promised[i]
		if (asking.UID == "" || h.UID != asking.UID) && !asking.passesOver(h) && !n.there(h.UID) {
			out = append(out, h)
		}
	}
	return out
}

// named reports whether a pod has a name, of which there is one at a time.
func (h *Held) named(namespace, name string) bool {
	return name != "" && h.Name == name && h.Namespace == namespace
}

func (n *NodeState) there(uid types.UID) bool {
	for i := range n.Pods {
		if n.Pods[i].UID == uid {
			return uid != ""
		}
	}
	return false
}
