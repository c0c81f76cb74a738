// Package fleet describes the nodes of a cluster and their evictions, from objects of the Kubernetes
// API and from records of agents. It is pure: objects go in, rows come out.
//
//	fleet.go      Of: a row for each node
//	agent.go      the agent of a node, from its pod
//	problems.go   the problems of a node
//	evictions.go  evictions, from records and events
//	totals.go     Totals: the number of evictions by node, namespace, signal and pod
package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// Names that bridges write: the source of events, and the prefix of node conditions.
const (
	Component       = "jettison"
	conditionPrefix = "Jettison"
)

// staleAfter is the age from which a load is unknown: two intervals in which a bridge writes it, and
// a minute for retries.
const staleAfter = 11 * time.Minute

// Kind is a kind of object that was listed.
type Kind string

// The kinds.
const (
	Nodes  Kind = "nodes"
	Agents Kind = "pods of the agent"
	Leases Kind = "leases"
	Events Kind = "events"
)

// Objects are the objects of a cluster.
type Objects struct {
	Nodes  []*v1.Node
	Agents []*v1.Pod
	Leases []*coordinationv1.Lease // of the bridges' namespace
	Events []*v1.Event             // of the bridges
	// Unknown has the kinds that could not be listed, and why.
	Unknown map[Kind]string
}

// Status describes the nodes of a cluster.
type Status struct {
	Time  time.Time `json:"time"`
	Nodes []Node    `json:"nodes"`
	// Unknown has the kinds of objects that could not be listed, and why.
	Unknown map[Kind]string `json:"unknown,omitempty"`
}

// Node describes a node. Nil fields and those in Unknown are unknown.
type Node struct {
	Name       string      `json:"name"`
	Ready      string      `json:"ready"` // True, False or Unknown: the condition of the kubelet
	Agent      Agent       `json:"agent"`
	Conditions []Condition `json:"conditions"` // Jettison*; empty: no bridge writes them
	// Load is the load that a bridge reported; nil: unknown.
	Load *api.NodeLoad `json:"load,omitempty"`
	// LastEviction is the newest eviction that a bridge reported; nil: none, or unknown (see Unknown).
	LastEviction *Eviction `json:"lastEviction,omitempty"`
	Problems     []string  `json:"problems"`
	// Unknown has the fields that are unknown, and why.
	Unknown map[string]string `json:"unknown,omitempty"`
}

// Condition is a condition of a node that a bridge wrote.
type Condition struct {
	Type    string    `json:"type"` // MemoryPressure: without the prefix
	Status  string    `json:"status"`
	Since   time.Time `json:"since"`
	Message string    `json:"message"`
}

// Fields of a Node that may be unknown.
const (
	FieldAgent      = "agent"
	FieldConditions = "conditions"
	FieldLoad       = "load"
	FieldEvictions  = "lastEviction"
)

// Of describes the nodes. Nodes with problems are first, then those nearest to a threshold.
func Of(now time.Time, o *Objects) *Status {
	out := &Status{Time: now, Nodes: make([]Node, 0, len(o.Nodes)), Unknown: o.Unknown}
	agents := map[string]*v1.Pod{}
	for _, p := range o.Agents {
		if was := agents[p.Spec.NodeName]; was == nil || newer(p, was) {
			agents[p.Spec.NodeName] = p
		}
	}
	leases := map[string]*coordinationv1.Lease{}
	for _, l := range o.Leases {
		leases[l.Name] = l
	}
	events := map[string][]*v1.Event{}
	for _, e := range o.Events {
		if e.Source.Component == Component {
			events[e.Source.Host] = append(events[e.Source.Host], e)
		}
	}
	for _, n := range o.Nodes {
		r := reader{now: now, node: n, pod: agents[n.Name], lease: leases[n.Name],
			events: events[n.Name], notListed: o.Unknown}
		out.Nodes = append(out.Nodes, r.read())
	}
	slices.SortFunc(out.Nodes, func(a, b Node) int {
		return cmp.Or(compareBool(len(b.Problems) > 0, len(a.Problems) > 0),
			cmp.Compare(a.margin(), b.margin()), strings.Compare(a.Name, b.Name))
	})
	return out
}

// newer reports whether a pod of a node describes its agent better than another one: a rollout
// leaves an ended pod and its replacement.
func newer(p, than *v1.Pod) bool {
	if ended := than.DeletionTimestamp != nil; ended != (p.DeletionTimestamp != nil) {
		return ended
	}
	return than.CreationTimestamp.Before(&p.CreationTimestamp)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// margin returns the headroom to the nearest threshold in percent; unknown ones are last.
func (n *Node) margin() float64 {
	if n.Load == nil || n.Load.Nearest == nil {
		return math.Inf(1)
	}
	return n.Load.Nearest.HeadroomPercent
}

// reader describes one node.
type reader struct {
	now       time.Time
	node      *v1.Node
	pod       *v1.Pod               // of the agent; nil: none
	lease     *coordinationv1.Lease // nil: none
	events    []*v1.Event
	notListed map[Kind]string

	out Node
}

func (r *reader) read() Node {
	r.out = Node{Name: r.node.Name, Ready: string(v1.ConditionUnknown), Conditions: []Condition{},
		Problems: []string{}, Unknown: map[string]string{}}
	for _, c := range r.node.Status.Conditions {
		kind, own := strings.CutPrefix(string(c.Type), conditionPrefix)
		switch {
		case own:
			r.out.Conditions = append(r.out.Conditions, Condition{Type: kind, Status: string(c.Status),
				Since: c.LastTransitionTime.Time, Message: c.Message})
		case c.Type == v1.NodeReady:
			r.out.Ready = string(c.Status)
		}
	}
	if len(r.out.Conditions) == 0 {
		r.out.Unknown[FieldConditions] = "no bridge has written them"
	}
	r.readLoad()
	r.readAgent()
	r.readLastEviction()
	r.findProblems()
	return r.out
}

// readLoad reads the load that the bridge reported on the node's Lease.
func (r *reader) readLoad() {
	unknown := func(why string) { r.out.Unknown[FieldLoad] = why }
	if why := r.notListed[Leases]; why != "" {
		unknown("cannot list leases: " + why)
		return
	}
	text := ""
	if r.lease != nil {
		text = r.lease.Annotations[api.LoadAnnotation]
	}
	if text == "" {
		unknown("no bridge has reported it")
		return
	}
	var l api.NodeLoad
	if err := json.Unmarshal([]byte(text), &l); err != nil || l.Time.IsZero() {
		unknown("the annotation " + api.LoadAnnotation + " is malformed")
		return
	}
	if age := r.now.Sub(l.Time); age > staleAfter {
		unknown(fmt.Sprintf("the bridge reported it %s ago", Ago(age)))
		return
	}
	r.out.Load = &l
}

// readLastEviction reads the last eviction from the events of the last hour, or else from the load.
func (r *reader) readLastEviction() {
	for _, e := range r.events {
		got, ok := FromEvent(e)
		if last := r.out.LastEviction; ok && (last == nil || got.Time.After(last.Time)) {
			r.out.LastEviction = &got
		}
	}
	l := r.out.Load
	switch last := r.out.LastEviction; {
	case l != nil && l.LastEviction != nil && (last == nil || l.LastEviction.Time.After(last.Time.Add(time.Minute))):
		r.out.LastEviction = &Eviction{Time: l.LastEviction.Time, Node: r.node.Name,
			Signal: string(l.LastEviction.Signal), Times: 1, Last: l.LastEviction.Time}
	case last != nil, l != nil && l.AgentVersion != "": // the agent has none in its history
	case r.notListed[Events] != "":
		r.out.Unknown[FieldEvictions] = "cannot list events: " + r.notListed[Events]
	default:
		r.out.Unknown[FieldEvictions] = "no bridge reports evictions"
	}
}

// Ago formats an age in its largest unit: 45s, 12m, 3h, 2d.
func Ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, d)/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}
