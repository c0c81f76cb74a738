// Package lifecycle decides the health of a cluster's nodes (ready, not ready or silent) and the
// resulting taints, labels and pod conditions. A node is silent when its kubelet renewed neither
// its Lease nor its status within the grace period.
//
// The rules are those of Kubernetes 1.37.2, pkg/controller/nodelifecycle, except where this package
// documents a difference. The package has no client, no clock and no goroutine. Step receives the
// observed cluster and returns the required writes; the caller carries them out and reports each
// result to End. Step decides again on a write that failed or has no visible effect.
//
//	lifecycle.go  Config, Core, Seen, Actions, Step
//	record.go     the state kept for a node
//	health.go     the last contact with a node, and the conditions of silent nodes
//	zone.go       zones, their states and rates
//	doubt.go      node silence in doubt
//	taints.go     the taints that a node must have
//	queue.go      the order in which nodes get NoExecute taints
//	pressure.go   taints for the conditions that jettison-bridge posts
//	marks.go      pods of nodes that are not ready
//	labels.go     derived labels
//	report.go     reports on nodes and zones for people
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

// PressureTaint selects the taint for a condition that jettison-bridge posts.
type PressureTaint string

// Values of PressureTaint.
const (
	PressurePrefer PressureTaint = "prefer" // effect PreferNoSchedule
	PressureHard   PressureTaint = "hard"   // effect NoSchedule
	PressureOff    PressureTaint = "off"    // no taint
)

// Config holds the settings of a Core. The names and defaults of the first group are upstream's
// (flags of kube-controller-manager 1.37.2).
type Config struct {
	NodeMonitorGracePeriod    time.Duration
	NodeStartupGracePeriod    time.Duration
	NodeEvictionRate          float64 // nodes per second in each zone
	SecondaryNodeEvictionRate float64
	LargeClusterSizeThreshold int32 // nodes in a zone
	UnhealthyZoneThreshold    float32

	Doubt         bool // suspend rates and marks while node silence is in doubt
	PressureTaint PressureTaint
	// SkipExcluded withholds NoExecute taints from nodes with the label
	// node.kubernetes.io/exclude-disruption. Upstream only excludes them from the zones' states.
	SkipExcluded bool
	// ExcludeControlPlane treats control plane nodes as if they had that label.
	ExcludeControlPlane bool
	// DelayFirstToken withholds the first token of each zone that exists at the first step. Another
	// instance may have just used a token, on a node that has since recovered and shows no taint.
	DelayFirstToken bool
}

// Seen is the input of Step: the observed cluster. Step neither changes nor keeps it.
type Seen struct {
	Nodes  map[string]*v1.Node
	Leases map[string]*coordination.Lease // by node name, from the namespace kube-node-lease
	Pods   func(node string) []*v1.Pod    // bound to the node
	// all changes of nodes and Leases up to this time were received
	Read time.Time
	// all changes of nodes and Leases since this time were received as they happened. For
	// cluster.ReturnPeriod afterwards, no node is called silent that was ready: the API server may have
	// been down before. Zero: always.
	WatchedSince time.Time
	// Arrivals returns when the node's current heartbeat and Lease were received, on the clock of
	// the step's time. nil: now.
	Arrivals func(node string) (beat, lease time.Time)
	// ClockSkew is the API server's clock minus the clock of the step's time. Times of objects, read
	// and written, are on the API server's clock.
	ClockSkew time.Duration
}

// Kind identifies a write to a node.
type Kind int

// The writes to a node. They succeed and fail independently.
const (
	WriteStatus Kind = iota
	WriteLabels
	WriteTaints
	kinds
)

// Status requests a change of conditions in a node's status. Other conditions stay unchanged.
type Status struct {
	Node       string
	UID        types.UID
	Conditions []v1.NodeCondition // sorted by type
	AnyLease   bool               // a Lease of another node of that name is a sign of life, too
}

// Labels requests labels on a node.
type Labels struct {
	Node string
	UID  types.UID
	Set  map[string]string
}

// Taints requests taints to add and remove in one write. A taint replaces one with the same key and
// effect.
type Taints struct {
	Node   string
	UID    types.UID
	Add    []v1.Taint // sorted by key and effect, with TimeAdded
	Remove []v1.Taint // key and effect
	// Evicted: the node had no NoExecute taint and gets one, which uses a token of its zone
	Evicted       bool
	NotReadySince time.Time // zero: the node is ready
	// AllDisrupted: the NoExecute taint is removed because all zones are disrupted. The caller
	// writes it after the status of the silent nodes.
	AllDisrupted bool
}

// Mark requests that the pod's condition Ready becomes False.
type Mark struct {
	Node, Namespace, Name string
	UID                   types.UID
	// Silent: the mark depends on the silence of the node. The caller makes it after the node's
	// condition Ready is Unknown.
	Silent bool
}

// Actions is the result of Step. Its lists are sorted by name.
type Actions struct {
	Status []Status
	Labels []Labels
	Taints []Taints
	Marks  []Mark
	Events []cluster.Event
	Zones  map[string]ZoneState // zones with nodes that count
	// zones without a ready node. Excluded nodes are ignored, except in a zone that has no others.
	NoneReady map[string]bool
	// why node silence is in doubt: rates are 0, and marks of silent nodes are suspended; empty: no
	// doubt
	Doubt string
	// StaleRead: the grace period of a node ended, but the last read is older. The next read
	// decides.
	StaleRead bool
	// when the caller must call Step again if nothing changes before; always after now; zero: never
	Next time.Time
}

// Core holds the state between two steps. Only one goroutine may use it.
type Core struct {
	config  Config
	records map[string]*record
	zones   map[string]*zone
	doubt   doubt
	started bool // Step was called before
	// full disruption of all zones: the control plane is more likely cut off than all nodes dead
	allDisrupted bool
}

// New returns an empty Core.
func New(c Config) *Core {
	return &Core{config: c, records: map[string]*record{}, zones: map[string]*zone{}}
}

// Step decides on the observed cluster. now must not be before that of the last call.
func (c *Core) Step(now time.Time, seen Seen) *Actions {
	s := &step{Core: c, now: now, seen: seen, out: &Actions{Zones: map[string]ZoneState{},
		NoneReady: map[string]bool{}}}
	s.dropRecords()
	names := make([]string, 0, len(seen.Nodes))
	for name := range seen.Nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	s.views = make([]view, len(names))
	for i, name := range names {
		s.views[i] = s.evaluate(seen.Nodes[name])
	}
	s.updateZones()
	for i := range s.views {
		v := &s.views[i]
		s.addNodeEvents(v)
		s.updateNotReady(v)
		s.selectMarks(v)
	}
	s.assignTokens()
	for i := range s.views {
		v := &s.views[i]
		s.writeStatus(v)
		s.writeTaints(v)
		s.writeLabels(v)
		s.writeMarks(v)
		v.record.isNew = false
	}
	s.started = true
	cluster.SortEvents(s.out.Events)
	slices.SortFunc(s.out.Marks, func(a, b Mark) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if !s.out.Next.IsZero() && !s.out.Next.After(now) {
		s.out.Next = now.Add(1)
	}
	return s.out
}

// step is the state of one Step.
type step struct {
	*Core
	now   time.Time
	seen  Seen
	views []view // sorted by name
	out   *Actions
}

// view is the evaluation of a node in one step.
type view struct {
	node    *v1.Node
	zone    string
	record  *record
	changes []v1.NodeCondition // conditions that change because the node is silent
	// status of Ready after these changes; empty: the node has no condition Ready
	ready         v1.ConditionStatus
	reported      v1.ConditionStatus // status of Ready as posted
	wentSilent    bool               // Ready was True or False and becomes Unknown
	counted       bool               // the node counts in its zone's state
	statusPending bool               // changes exist and cannot be written now
}

// wakeAt requests a step at that time.
func (s *step) wakeAt(at time.Time) { cluster.Earliest(&s.out.Next, at) }

// dropRecords deletes the records of nodes that no longer exist or have another UID.
func (s *step) dropRecords() {
	for name, r := range s.records {
		if n := s.seen.Nodes[name]; n == nil || n.UID != r.uid {
			s.addEvent(name, r.uid, ReasonRemoved, "Node %s event: Removing Node %s from Controller", name,
				name)
			delete(s.records, name)
		}
	}
}

// addEvent adds an event of a node.
func (s *step) addEvent(name string, uid types.UID, reason, format string, args ...any) {
	s.out.Events = append(s.out.Events, cluster.Event{
		Kind: "Node", Name: name, UID: uid, Type: v1.EventTypeNormal, Reason: reason,
		Message: fmt.Sprintf(format, args...),
	})
}

// Reasons of node events.
const (
	ReasonRegistered = "RegisteredNode"
	ReasonNotReady   = "NodeNotReady"
	ReasonRemoved    = "RemovingNode"
)

// addNodeEvents adds the events of a node that is new or fell silent.
func (s *step) addNodeEvents(v *view) {
	name := v.node.Name
	if v.record.isNew {
		s.addEvent(name, v.node.UID, ReasonRegistered, "Node %s event: Registered Node %s in Controller",
			name, name)
	}
	if v.wentSilent && !v.record.announced {
		v.record.announced = true
		s.addEvent(name, v.node.UID, ReasonNotReady, "Node %s status is now: NodeNotReady", name)
	}
}

// End records the result of a write to a node. After a failure Step decides again once the backoff
// has passed.
func (c *Core) End(now time.Time, node string, uid types.UID, kind Kind, ok bool) {
	if r := c.records[node]; r != nil && r.uid == uid {
		r.writes[kind].End(now, ok)
	}
}

// EndMark records the result of a Mark. A pod that no longer exists counts as marked.
func (c *Core) EndMark(now time.Time, m Mark, ok bool) {
	r := c.records[m.Node]
	if r == nil || r.marks[m.UID] == nil {
		return
	}
	if r.marks[m.UID].End(now, ok); ok {
		delete(r.marks, m.UID)
	}
}

// begin starts a write to a node, unless one is in flight or backing off.
func (s *step) begin(r *record, kind Kind) bool {
	if r.writes[kind].Begin(s.now) {
		return true
	}
	s.wakeAt(r.writes[kind].Next(s.now))
	return false
}

func (s *step) writeStatus(v *view) {
	if len(v.changes) == 0 {
		return
	}
	if v.statusPending = !s.begin(v.record, WriteStatus); !v.statusPending {
		s.out.Status = append(s.out.Status, Status{Node: v.node.Name, UID: v.node.UID,
			Conditions: v.changes, AnyLease: s.statusPosted(v.record)})
	}
}
