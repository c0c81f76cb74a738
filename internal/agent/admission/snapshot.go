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

// Snapshot is what the loop knows at one time. It is never changed once it is published.
type Snapshot struct {
	Node admit.NodeState // its pods are in no order
	// Observe: nothing is refused, for a kubelet is on this node, or it is a dry run.
	Observe   bool
	self      string // the cgroup of this process; empty: unknown
	runtime   read.Index
	objects   map[string]*v1.Pod // by UID, trimmed
	members   map[string]bool    // UIDs of those that a member of the socket's group put
	manifests []*v1.Pod          // static ones, as they were read
	heldOff   func(now time.Time, pod *v1.Pod) (why string, held bool)
}

// Options of NewPart. All functions are called by the loop's goroutine, but for HeldOff.
type Options struct {
	Node   Node
	DryRun bool
	Self   func() string // the cgroup of this process; empty: unknown
	// Capacity is what the node has, Allocatable what of that is pods'.
	Capacity    func() v1.ResourceList
	Allocatable func(capacity v1.ResourceList) v1.ResourceList
	// Evictions are the UIDs of pods that are being killed, and of those that were and did not die.
	Evictions func(now time.Time) (ending, undying map[string]bool)
	// HeldOff says why a pod is kept out that was evicted, or comes in place of one that was. It is
	// for any goroutine.
	HeldOff func(now time.Time, pod *v1.Pod) (why string, held bool)
	// Dead are the sandboxes of pods that were killed and of which nothing is left, by UID: they hold
	// no room, whatever the runtime says yet. nil: there is none.
	Dead func(now time.Time) map[string][]string
	// Ended are sandboxes of pods that have ended since the runtime listed them, with all their
	// containers: they hold no room. nil: none has.
	Ended func(uid, sandbox string) bool
	// Promised is room that is kept for pods that do not run yet; nil: there is none.
	Promised  func(now time.Time) []admit.Held
	Preemptor Preemptor                       // nil: nobody makes room for critical pods
	Name      func(stats.PodReference) string // of a pod, in the log
	Log       *logthrottle.Logger
}

// capacityFor is how long what the node has stays as it was read: a file system may grow, and huge
// pages are given out by hand.
const capacityFor = 10 * time.Second

// Part is the loop's. It publishes a Snapshot when something of it has changed.
type Part struct {
	o Options
	a *Admission

	index     read.Index
	objects   map[string]*v1.Pod
	members   map[string]bool // of objects: UIDs of those that a member of the socket's group put
	judged    map[string]*eviction.Pod
	manifests []*v1.Pod
	known     map[string]*known // by UID

	capacity, allocatable v1.ResourceList
	measured              time.Time

	changed    bool
	conditions []eviction.Condition // as published, with the next
	kubelet    bool
}

// NewPart makes a Part that knows of no pod, and publishes for a.
func NewPart(a *Admission, o Options) *Part {
	if o.Preemptor != nil {
		a.preempts.Store(&o.Preemptor)
	}
	return &Part{o: o, a: a, changed: true}
}

// OnPods takes the runtime's pods.
func (p *Part) OnPods(pods read.Index) { p.index, p.changed = pods, true }

// OnObjects takes what is known of pod objects and manifests.
func (p *Part) OnObjects(s *podstore.Snapshot) {
	p.judged, p.members, p.manifests, p.changed = s.Pods, s.Members, s.Manifests, true
	p.objects = make(map[string]*v1.Pod, len(s.Objects))
	for _, o := range s.Objects {
		p.objects[string(o.UID)] = o
	}
}

// Reconfigure takes another configuration: who counts and is spared by it, and what it says of the
// node. What is allocatable is asked anew.
func (p *Part) Reconfigure(policy eviction.Policy, node Node) {
	p.a.policy.Store(&policy)
	p.o.Node, p.known, p.capacity, p.changed = node, nil, nil, true
}

// Changed has a Snapshot published at the next turn of the loop: evictions or promises have
// changed.
func (p *Part) Changed() { p.changed = true }

// Publish publishes a Snapshot, if something has changed. It is called each turn of the loop, and
// allocates only for a new one.
func (p *Part) Publish(now time.Time, conditions []eviction.Condition, kubelet bool) {
	p.a.seen.Store(int64(now.Sub(p.a.began)))
	if !p.changed && kubelet == p.kubelet && slices.Equal(conditions, p.conditions) {
		return
	}
	p.changed, p.kubelet, p.conditions = false, kubelet, slices.Clone(conditions)
	if p.capacity == nil || now.Sub(p.measured) >= capacityFor {
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
	if p.o.Promised != nil {
		s.Node.Promised = p.o.Promised(now)
	}
	p.a.snapshot.Store(s)
}

// Told has pods that were refused, for OnTold.
func (p *Part) Told() <-chan Refusal { return p.a.told }

// OnTold logs a pod that was refused, or would have been.
func (p *Part) OnTold(r Refusal) {
	what := "a pod is refused"
	if r.Observed {
		what = "a pod would be refused without a kubelet"
	}
	var all []string
	for _, f := range r.Failures {
		if !slices.Contains(all, f.Reason) {
			all = append(all, f.Reason)
		}
	}
	p.o.Log.Repeat("refused "+r.Pod.UID+" "+r.Failures[0].Reason, func() {
		p.o.Log.Info(what, api.EventGate.Attr(), "pod", p.o.Name(r.Pod), "uid", r.Pod.UID, "container",
			r.Container,
			"reason", r.Failures[0].Reason,
			"message", strings.TrimSpace(r.Failures[0].Message), "reasons", all)
	})
}

// Refused and Observed count pods that were refused, or would have been, by the first reason of
// each. They are for any goroutine.
func (p *Part) Refused() map[string]uint64 { return p.a.counts.by(false) }

// Observed is likewise.
func (p *Part) Observed() map[string]uint64 { return p.a.counts.by(true) }

// State is what the gate has answered. asked: the runtime asks.
func (p *Part) State(asked bool) *api.GateState {
	out := &api.GateState{Asked: asked, Enforced: asked && !p.kubelet && !p.o.DryRun}
	p.a.counts.fill(out)
	return out
}
