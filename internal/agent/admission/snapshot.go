package admission

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/api"
	"jettison/eviction"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/base/logthrottle"
	"jettison/stats"
	"jettison/stats/read"
)

// Snapshot is the state of the node that the loop knew at one time. It is immutable after
// publication.
type Snapshot struct {
	Node admit.NodeState // its pods are in no order
	// Observe: the gate admits every pod, because a kubelet runs on this node or because of a dry run.
	Observe   bool
	self      string // the cgroup of this process; empty: unknown
	runtime   read.Index
	objects   map[string]*v1.Pod // by UID, trimmed
	members   map[string]bool    // UIDs of objects that a member of the socket's group provided
	manifests []*v1.Pod          // static ones, as read
	heldOff   func(now time.Time, pod *v1.Pod) (why string, held bool)
}

// Options configures NewPart. The loop's goroutine calls all functions except HeldOff.
type Options struct {
	Node   Node
	DryRun bool
	Self   func() string // the cgroup of this process; empty: unknown
	// Capacity returns the node's capacity, Allocatable the share of it for pods.
	Capacity    func() v1.ResourceList
	Allocatable func(capacity v1.ResourceList) v1.ResourceList
	// Evictions returns the UIDs of pods that are being killed, and of pods that did not die.
	Evictions func(now time.Time) (ending, undying map[string]bool)
	// HeldOff returns why an evicted pod, or its replacement, is in its hold-off. It is safe for
	// concurrent use.
	HeldOff func(now time.Time, pod *v1.Pod) (why string, held bool)
	// Dead returns, by UID, the sandboxes of killed pods with no process left: they hold no resources
	// even if the runtime still lists them. nil: none.
	Dead func(now time.Time) map[string][]string
	// Ended reports sandboxes that ended, with all containers, after the runtime listed them: they
	// hold no resources. nil: none did.
	Ended func(uid, sandbox string) bool
	// Reservations returns the resources reserved for pods that do not run yet. nil: none.
	Reservations func(now time.Time) []admit.Held
	Preemptor    Preemptor                       // nil: no preemption for critical pods
	Name         func(stats.PodReference) string // returns the name of a pod for the log
	Log          *logthrottle.Logger
}

// capacityInterval is the time between two reads of the node's capacity: a file system may grow,
// and an administrator may reserve huge pages.
const capacityInterval = 10 * time.Second

// Part publishes the loop's state as a new Snapshot after each change. It belongs to the loop.
type Part struct {
	o Options
	a *Admission

	index     read.Index
	objects   map[string]*v1.Pod
	members   map[string]bool // UIDs of objects that a member of the socket's group provided
	judged    map[string]*eviction.Pod
	manifests []*v1.Pod
	heldPods  map[string]*heldPod // by UID

	capacity, allocatable v1.ResourceList
	measured              time.Time

	changed    bool
	conditions []eviction.Condition // those of the published snapshot, as is kubelet
	kubelet    bool
}

// NewPart creates a Part without pods that publishes to a.
func NewPart(a *Admission, o Options) *Part {
	if o.Preemptor != nil {
		a.preemptor.Store(&o.Preemptor)
	}
	return &Part{o: o, a: a, changed: true}
}

// OnPods receives the runtime's pods.
func (p *Part) OnPods(pods read.Index) { p.index, p.changed = pods, true }

// OnObjects receives the known pod objects and manifests.
func (p *Part) OnObjects(s *podstore.Snapshot) {
	p.judged, p.members, p.manifests, p.changed = s.Pods, s.Members, s.Manifests, true
	p.objects = make(map[string]*v1.Pod, len(s.Objects))
	for _, o := range s.Objects {
		p.objects[string(o.UID)] = o
	}
}

// Reconfigure applies another configuration: the eviction policy and the node's data. Allocatable
// is computed again.
func (p *Part) Reconfigure(policy eviction.Policy, node Node) {
	p.a.policy.Store(&policy)
	p.o.Node, p.heldPods, p.capacity, p.changed = node, nil, nil, true
}

// Changed makes the next turn of the loop publish a Snapshot, after evictions or reservations changed.
func (p *Part) Changed() { p.changed = true }

// Publish publishes a Snapshot if something changed. The loop calls it each turn; it allocates only
// for a new snapshot.
func (p *Part) Publish(now time.Time, conditions []eviction.Condition, kubelet bool) {
	p.a.publishedAt.Store(int64(now.Sub(p.a.began)))
	if !p.changed && kubelet == p.kubelet && slices.Equal(conditions, p.conditions) {
		return
	}
	p.changed, p.kubelet, p.conditions = false, kubelet, slices.Clone(conditions)
	if p.capacity == nil || now.Sub(p.measured) >= capacityInterval {
		p.capacity, p.measured = p.o.Capacity(), now
		p.allocatable = p.o.Allocatable(p.capacity)
	}
	s := &Snapshot{
		Node: p.o.Node.state(kubelet), Observe: kubelet || p.o.DryRun, self: p.o.Self(), runtime: p.index,
		objects: p.objects,
		members: p.members, manifests: p.manifests, heldOff: p.o.HeldOff,
	}
	for _, c := range conditions {
		s.Node.Conditions = append(s.Node.Conditions, string(c))
	}
	s.Node.Allocatable = p.allocatable
	s.Node.Pods = p.pods(now)
	if p.o.Reservations != nil {
		s.Node.Reservations = p.o.Reservations(now)
	}
	p.a.snapshot.Store(s)
}

// Refusals returns the channel of refusals, which the loop passes to OnRefusal.
func (p *Part) Refusals() <-chan Refusal { return p.a.refusals }

// OnRefusal logs a pod that was rejected, or would have been.
func (p *Part) OnRefusal(r Refusal) {
	var all []string
	for _, f := range r.Failures {
		if !slices.Contains(all, f.Reason) {
			all = append(all, f.Reason)
		}
	}
	attrs := []any{api.EventGate.Attr(), "pod", p.o.Name(r.Pod), "uid", r.Pod.UID, "container",
		r.Container, "reason", r.Failures[0].Reason,
		"message", strings.TrimSpace(r.Failures[0].Message), "reasons", all}
	p.o.Log.Repeat("refused "+r.Pod.UID+" "+r.Failures[0].Reason, func() {
		if r.Observed {
			//log: The agent would reject the pod. The gate lets the pod start because a kubelet runs on
			//  this node or the agent is in dry run.
			p.o.Log.Info("pod would be rejected", attrs...)
			return
		}
		//log: The gate refused to start a pod. The runtime gets reason and message; the key reasons
		//  lists all reasons against it.
		p.o.Log.Info("pod rejected", attrs...)
	})
}

// Refused returns the number of pods that were rejected, by the first reason of each. It is safe
// for concurrent use.
func (p *Part) Refused() map[string]uint64 { return p.a.counts.byReason(false) }

// Observed returns the number of pods that would have been rejected, by the first reason of each.
func (p *Part) Observed() map[string]uint64 { return p.a.counts.byReason(true) }

// State returns the counts of the gate's answers. asked: the runtime asks the gate.
func (p *Part) State(asked bool) *api.GateState {
	out := &api.GateState{Asked: asked, Enforced: asked && !p.kubelet && !p.o.DryRun}
	p.a.counts.fill(out)
	return out
}
