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

// gateway makes the gate in the runtime, and what it answers by. A dry run keeps nobody out, and
// says whom it would have.
func (b *builder) gateway(l *loop) gateway {
	o, c := b.o, b.o.Config
	var asker nri.Asker
	if c.Gate {
		asker = b.admission
	}
	owner := func(uid string) gate.Owner { return ownerOf(b.objects.Object(uid)) }
	g := gate.New(gate.Options{
		Log: b.log, Name: l.pods.Name, Asker: asker, Owner: owner,
		Marked: func(uid string) bool { return marked(b.objects.Object(uid)) },
	}, c.Gate && !o.DryRun)
	preempting := b.preempting(l)
	return gateway{g, admission.NewPart(b.admission, admission.Options{
		DryRun: o.DryRun, Log: b.log, Name: l.pods.Name, Self: b.s.Reader.Self,
		Node:     l.node(),
		Capacity: l.capacity, Allocatable: l.allocatable, Evictions: l.underway, Dead: l.dead,
		Ended: l.pods.Ended,
		HeldOff: func(now time.Time, p *v1.Pod) (string, bool) {
			return g.HeldOff(now, string(p.UID), ownerOf(p))
		},
		Promised: preempting.Promised, Preemptor: preempting,
	}), preempting}
}

// node is what the configuration says of the node, and what does not change.
func (l *loop) node() admission.Node {
	c := l.o.Config
	return admission.Node{
		Name:       cmp.Or(c.HostnameOverride, admission.Hostname(cmp.Or(l.o.ProcMount, "/proc"))),
		Arch:       runtime.GOARCH,
		Configured: c.NodeLabels, Taints: c.Taints(), Sysctls: c.Sysctls,
		AppArmor: admission.AppArmor("/sys"),
	}
}

// allocatable is what of a capacity pods may request together. Without isolation of local storage
// none of that is counted; in a kubelet it is 0 then, and refuses.
func (l *loop) allocatable(capacity v1.ResourceList) v1.ResourceList {
	out := admit.Allocatable(capacity, l.reserved(capacity))
	if !l.o.Config.LocalStorageCapacityIsolation {
		delete(out, v1.ResourceEphemeralStorage)
	}
	out[v1.ResourcePods] = *resource.NewQuantity(l.o.Config.MostPods(pace.Cores()), resource.DecimalSI)
	return out
}

// underway are the pods that are being killed, and those that were and did not die.
func (l *loop) underway(now time.Time) (ending, undying map[string]bool) {
	ending, undying = map[string]bool{}, map[string]bool{}
	for uid := range l.manager.SetAside(now) {
		undying[uid] = true
	}
	for _, life := range l.manager.Lives() {
		// What is made of its UID after its end is another pod, which holds room.
		if back, _ := life.Room(now); life.Leaving() && !back {
			ending[life.Eviction().Pod.PodRef.UID] = true
		}
	}
	return ending, undying
}

// admission publishes what new pods are decided by, if it has changed.
func (l *loop) admission(now time.Time) {
	if l.gate.preempting.Advance(now) {
		l.gate.admission.Changed()
		l.shown.changed()
	}
	l.publishAdmission(now)
}

// state is what the gate has answered, and for whom room is made.
func (g *gateway) state(now time.Time) *api.GateState {
	out := g.admission.State(g.Asked())
	g.preempting.Fill(now, out)
	out.Holds = g.State(now)
	return out
}

// ownerOf is the controller of a pod by its object, which may be nil. One that has none is its own,
// under its name.
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

// marked tells that a pod's object, which may be nil, says that it was evicted, whatever its phase
// is just now: a kubelet may write its own over that.
func marked(p *v1.Pod) bool { return p != nil && p.Annotations[api.AnnotationEvicted] != "" }

// followOwners keeps out what DaemonSets make in place of pods that are kept out.
func (l *loop) followOwners(now time.Time) {
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

func (l *loop) onRefused(r admission.Refusal) {
	l.gate.admission.OnRefusal(r)
	l.shown.changed()
}
