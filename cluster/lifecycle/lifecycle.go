// Package lifecycle decides what a cluster's nodes are: healthy, not ready or silent, and what
// follows of that for their taints, labels and pods. The rules are those of Kubernetes 1.36.3,
// pkg/controller/nodelifecycle, where this package does not say otherwise. It has no client, no
// clock and no goroutine: Step is told what is seen and answers with what is to be written; whoever
// writes tells End how that went. What was not written, or is not seen, is decided again.
//
//	lifecycle.go  Config, Core, Seen, Actions, Step
//	record.go     what is remembered of a node
//	health.go     when a node was heard of last; the conditions that silence changes
//	zone.go       zones, their states and rates
//	doubt.go      when silence may be our own
//	taints.go     the taints that a node is to have
//	queue.go      who gets a NoExecute taint next
//	pressure.go   taints of the conditions that jettison-bridge posts
//	marks.go      pods of a node that is not ready
//	labels.go     labels that follow others
//	report.go     how nodes and zones are found, for people
package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster"
)

// PressureTaint is what becomes of a condition that jettison-bridge posts.
type PressureTaint string

// What becomes of it.
const (
	PressurePrefer PressureTaint = "prefer" // a taint with the effect PreferNoSchedule
	PressureHard   PressureTaint = "hard"   // NoSchedule
	PressureOff    PressureTaint = "off"    // none
)

// Config says by what it is decided. The names and defaults of the first seven are upstream's
// (flags of kube-controller-manager 1.36.3).
type Config struct {
	NodeMonitorGracePeriod    time.Duration
	NodeStartupGracePeriod    time.Duration
	NodeEvictionRate          float64 // nodes a second, in each zone
	SecondaryNodeEvictionRate float64
	LargeClusterSizeThreshold int32 // nodes of a zone
	UnhealthyZoneThreshold    float32

	Doubt         bool // wait where silence may be our own
	PressureTaint PressureTaint
	// LeaveExcluded: nodes with the label node.kubernetes.io/exclude-disruption get no NoExecute
	// taint. Upstream leaves them out of the zones' states only.
	LeaveExcluded bool
	// ExcludeControlPlane: nodes of the control plane count as if they had that label.
	ExcludeControlPlane bool
	// FirstWaits: what a zone has at the first step has no token, since another instance may have
	// given one just now, to a node that is back already and does not show it.
	FirstWaits bool
}

// Seen is what is there. Nothing of it is changed or kept.
type Seen struct {
	Nodes  map[string]*v1.Node
	Leases map[string]*coordination.Lease // by the node's name; of the namespace kube-node-lease
	Pods   func(node string) []*v1.Pod    // those that are bound to a node
	// since when neither nodes nor leases may have changed without being seen
	Read time.Time
	// Came is when a node's heartbeat, and its lease, came to be as they are, by the clock that the
	// step's time is of; nil: just now.
	Came func(node string) (beat, lease time.Time)
	// Ahead is by how much the API server's clock, of which its stamps are, is before that of the
	// step's time; below 0: it is behind.
	Ahead time.Duration
}

// Kind of a write.
type Kind int

// The writes of a node. Each is made by itself.
const (
	WriteStatus Kind = iota
	WriteLabels
	WriteTaints
	kinds
)

// Status is conditions to be written into a node's status. All others stay as they are.
type Status struct {
	Node       string
	UID        types.UID
	Conditions []v1.NodeCondition // sorted by type
}

// Labels are labels to be set.
type Labels struct {
	Node string
	UID  types.UID
	Set  map[string]string
}

// Taints are taints to be added and removed, in one write; taints of the same key and effect are
// replaced.
type Taints struct {
	Node   string
	UID    types.UID
	Add    []v1.Taint // sorted by key and effect, with the time
	Remove []v1.Taint // key and effect
	// it is a NoExecute taint of a node that had none: a token of its zone was taken for it
	Evicted bool
	Failed  time.Time // since when the node is not ready; zero: it is
	// its NoExecute taint goes since all zones fell: not before it is written which nodes did
	Fallen bool
}

// Mark is a pod whose condition Ready becomes False, if it is not.
type Mark struct {
	Node, Namespace, Name string
	UID                   types.UID
}

// Actions are to be carried out. Lists are sorted by name.
type Actions struct {
	Status []Status
	Labels []Labels
	Taints []Taints
	Marks  []Mark
	Events []cluster.Event
	Zones  map[string]ZoneState // those that have nodes to count
	// why the rates are 0 although zones would have one; empty: they are not
	Doubt string
	// Unread: the time of a node is up, but nothing was read since. It is silent once something was.
	Unread bool
	// when Step has to be called again if nothing is seen before; never before now; zero: never
	Next time.Time
}

// Core remembers what silence and rates are counted from. It is for one goroutine.
type Core struct {
	config  Config
	records map[string]*record
	zones   map[string]*zone
	doubt   doubt
	begun   bool // there was a step
	// all zones are fully disrupted: the control plane is more likely cut off than all nodes dead
	disorder bool
}

// New makes a Core that has seen nothing.
func New(c Config) *Core {
	return &Core{config: c, records: map[string]*record{}, zones: map[string]*zone{}}
}

// Step looks at everything. Time must not go back.
func (c *Core) Step(now time.Time, seen Seen) *Actions {
	s := &step{Core: c, now: now, seen: seen, out: &Actions{Zones: map[string]ZoneState{}}}
	s.forget()
	names := make([]string, 0, len(seen.Nodes))
	for name := range seen.Nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	s.views = make([]view, len(names))
	for i, name := range names {
		s.views[i] = s.look(seen.Nodes[name])
	}
	s.judgeZones()
	for i := range s.views {
		v := &s.views[i]
		s.announce(v)
		s.fail(v)
		s.wantMarks(v)
	}
	s.drawTokens()
	for i := range s.views {
		v := &s.views[i]
		s.writeStatus(v)
		s.writeTaints(v)
		s.writeLabels(v)
		s.writeMarks(v)
		v.record.first = false
	}
	s.begun = true
	cluster.SortEvents(s.out.Events)
	slices.SortFunc(s.out.Marks, func(a, b Mark) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if !s.out.Next.IsZero() && !s.out.Next.After(now) {
		s.out.Next = now.Add(1)
	}
	return s.out
}

// step is one look.
type step struct {
	*Core
	now   time.Time
	seen  Seen
	views []view // sorted by name
	out   *Actions
}

// view is a node in one step.
type view struct {
	node    *v1.Node
	zone    string
	record  *record
	changed []v1.NodeCondition // what silence changes of its conditions
	ready   v1.ConditionStatus // after that; empty: it has no condition Ready
	was     v1.ConditionStatus // as the node says
	fell    bool               // Ready was True, and silence ends that
	counted bool               // in its zone's state
	unsaid  bool               // changed is to be written, and cannot be now
}

// again asks for a step at a time.
func (s *step) again(at time.Time) { cluster.Earliest(&s.out.Next, at) }

// forget drops what is remembered of nodes that are gone, or that others of their name have
// replaced.
func (s *step) forget() {
	for name, r := range s.records {
		if n := s.seen.Nodes[name]; n == nil || n.UID != r.uid {
			s.event(name, r.uid, ReasonRemoved, "Node %s event: Removing Node %s from Controller", name,
				name)
			delete(s.records, name)
		}
	}
}

// event notes one of a node.
func (s *step) event(name string, uid types.UID, reason, format string, args ...any) {
	s.out.Events = append(s.out.Events, cluster.Event{
		Kind: "Node", Name: name, UID: uid, Type: v1.EventTypeNormal, Reason: reason,
		Message: fmt.Sprintf(format, args...),
	})
}

// Reasons of events of nodes.
const (
	ReasonRegistered = "RegisteredNode"
	ReasonNotReady   = "NodeNotReady"
	ReasonRemoved    = "RemovingNode"
)

// announce says what has become of a node.
func (s *step) announce(v *view) {
	name := v.node.Name
	if v.record.first {
		s.event(name, v.node.UID, ReasonRegistered, "Node %s event: Registered Node %s in Controller",
			name, name)
	}
	if v.fell && !v.record.said {
		v.record.said = true
		s.event(name, v.node.UID, ReasonNotReady, "Node %s status is now: NodeNotReady", name)
	}
}

// End notes how a write of a node ended. A write that failed is decided again after a while.
func (c *Core) End(now time.Time, node string, uid types.UID, kind Kind, ok bool) {
	if r := c.records[node]; r != nil && r.uid == uid {
		r.writes[kind].End(now, ok)
	}
}

// EndMark notes how a mark ended. A pod that is gone counts as marked.
func (c *Core) EndMark(now time.Time, m Mark, ok bool) {
	r := c.records[m.Node]
	if r == nil || r.marks[m.UID] == nil {
		return
	}
	if r.marks[m.UID].End(now, ok); ok {
		delete(r.marks, m.UID)
	}
}

// begin begins a write of a node, if it may be made now.
func (s *step) begin(r *record, kind Kind) bool {
	if r.writes[kind].Begin(s.now) {
		return true
	}
	s.again(r.writes[kind].Next(s.now))
	return false
}

func (s *step) writeStatus(v *view) {
	if len(v.changed) == 0 {
		return
	}
	if v.unsaid = !s.begin(v.record, WriteStatus); !v.unsaid {
		s.out.Status = append(s.out.Status, Status{Node: v.node.Name, UID: v.node.UID,
			Conditions: v.changed})
	}
}
