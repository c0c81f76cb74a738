package agent

import (
	"cmp"
	"runtime"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/admit"
	"jettison/api"
	"jettison/cri/nri"
	"jettison/internal/agent/admission"
	"jettison/internal/agent/gate"
	"jettison/internal/agent/pace"
)

// gateway creates the gate and the admission part. A dry run refuses no pod, and logs those that it
// would have refused.
func (b *builder) gateway(l *loop) gateway {
	o, c := b.o, b.o.Config
	var asker nri.Asker
	if c.Gate {
		asker = b.admission
	}
	owner := func(uid string) gate.Owner { return ownerOf(b.objects.Object(uid)) }
	g := gate.New(gate.Options{
		Log: b.log, Name: l.pods.Name, Asker: asker, Owner: owner,
		Marked: func(uid string) bool { return evictionMarked(b.objects.Object(uid)) },
	}, c.Gate && !o.DryRun)
	preempting := b.preempting(l)
	return gateway{g, admission.NewPart(b.admission, admission.Options{
		DryRun: o.DryRun, Log: b.log, Name: l.pods.Name, Self: b.s.Reader.Self,
		Node:     l.node(),
		Capacity: l.capacity, Allocatable: l.allocatable, Evictions: l.dyingPods, Dead: l.deadSandboxes,
		Ended: l.pods.Ended,
		HeldOff: func(now time.Time, p *v1.Pod) (string, bool) {
			return g.HeldOff(now, string(p.UID), ownerOf(p))
		},
		Reservations: preempting.Reservations, Preemptor: preempting,
	}), preempting}
}

// node returns the node's data from the configuration and the host that only the configuration
// changes.
func (l *loop) node() admission.Node {
	c := l.o.Config
	return admission.Node{
		Name:       cmp.Or(c.HostnameOverride, admission.Hostname(cmp.Or(l.o.ProcMount, "/proc"))),
		Arch:       runtime.GOARCH,
		Configured: c.NodeLabels, Taints: c.Taints(), Sysctls: c.Sysctls,
		AppArmor: admission.AppArmor("/sys"),
	}
}

// allocatable returns the part of a capacity that pods may request in total. Without local storage
// isolation, ephemeral storage is omitted; in a kubelet it would be 0 and reject pods.
func (l *loop) allocatable(capacity v1.ResourceList) v1.ResourceList {
	out := admit.Allocatable(capacity, l.reserved(capacity))
	if !l.o.Config.LocalStorageCapacityIsolation {
		delete(out, v1.ResourceEphemeralStorage)
	}
	out[v1.ResourcePods] = *resource.NewQuantity(l.o.Config.MaxPodCount(pace.Cores()), resource.DecimalSI)
	return out
}

// dyingPods returns the pods that are being killed, and the pods that did not die.
func (l *loop) dyingPods(now time.Time) (ending, undying map[string]bool) {
	ending, undying = map[string]bool{}, map[string]bool{}
	for uid := range l.manager.SetAside(now) {
		undying[uid] = true
	}
	for _, life := range l.manager.Lives() {
		// A pod that starts under the UID after the end is another pod, which holds its own resources.
		if back, _ := life.RoomState(now); life.CleaningUp() && !back {
			ending[life.Eviction().Pod.PodRef.UID] = true
		}
	}
	return ending, undying
}

// admission publishes the data that decisions on new pods use, if it changed.
func (l *loop) admission(now time.Time) {
	if l.gate.preempting.Advance(now) {
		l.gate.admission.Changed()
		l.publisher.markChanged()
	}
	l.publishAdmission(now)
}

// state returns the counts of the gate, and the preemptions in progress.
func (g *gateway) state(now time.Time) *api.GateState {
	out := g.admission.State(g.Asked())
	g.preempting.Fill(now, out)
	out.Holds = g.State(now)
	return out
}

// nameHolds adds the names of the pods that the agent evicted to the hold-offs.
func (l *loop) nameHolds(holds []api.HoldState) []api.HoldState {
	for i := range holds {
		holds[i].Pod, _ = l.evictions.Pod(holds[i].UID)
	}
	return holds
}

// ownerOf returns the controller of a pod from its object, which may be nil. A pod without a
// controller is its own owner, under its name.
func ownerOf(p *v1.Pod) (owner gate.Owner) {
	if p == nil {
		return owner
	}
	owner.Namespace, owner.Name = p.Namespace, p.Name
	if c := metav1.GetControllerOfNoCopy(p); c != nil {
		owner.Kind, owner.UID = c.Kind, string(c.UID)
	}
	return owner
}

// evictionMarked reports whether a pod's object, which may be nil, has the annotation of its
// eviction. The phase is ignored, because a kubelet may overwrite it.
func evictionMarked(p *v1.Pod) bool {
	return p != nil && p.Annotations[api.AnnotationEvicted] != ""
}

// holdReplacements starts hold-offs of the pods that DaemonSets create in place of evicted pods.
func (l *loop) holdReplacements(now time.Time) {
	changed := l.gate.HoldReplacements(now, func(yield func(gate.Owner) bool) {
		for _, p := range l.objects.All() {
			if !yield(ownerOf(p)) {
				return
			}
		}
	})
	if changed {
		l.evictions.Changed()
	}
}

func (l *loop) publishAdmission(now time.Time) {
	ready := l.manager.Ready(now)
	l.gate.admission.Publish(now, ready.Conditions, l.kubelet.Found())
}

func (l *loop) onRefusal(r admission.Refusal) {
	l.gate.admission.OnRefusal(r)
	l.publisher.markChanged()
}
