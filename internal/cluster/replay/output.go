package replay

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster"
	"jettison/cluster/lifecycle"
	"jettison/cluster/taint"
)

// Output holds the decisions on one frame. Its lists are never null.
type Output struct {
	Time         string                         `json:"time"`   // as in the frame
	Status       []Status                       `json:"status"` // by node
	Labels       []Labels                       `json:"labels"` // by node
	Taints       []Taints                       `json:"taints"` // by node
	PodsNotReady []string                       `json:"podsNotReady"`
	Evict        []Eviction                     `json:"evict"`  // by namespace and name
	Events       []Event                        `json:"events"` // by object
	Zones        map[string]lifecycle.ZoneState `json:"zones"`
	// why tainting is suspended
	Doubt string `json:"doubt,omitempty"`
	// RFC 3339 in UTC; null: no deadline
	Next *string `json:"next"`
}

// Status lists the changed conditions of a node, by type.
type Status struct {
	Node       string      `json:"node"`
	Conditions []Condition `json:"conditions"`
}

// Condition is a changed condition.
type Condition struct {
	Type    v1.NodeConditionType `json:"type"`
	Status  v1.ConditionStatus   `json:"status"`
	Reason  string               `json:"reason"`
	Message string               `json:"message"`
}

// Labels lists the labels to set on a node.
type Labels struct {
	Node string            `json:"node"`
	Set  map[string]string `json:"set"`
}

// Taints lists the taints to add to and remove from a node, each as "key:effect", sorted.
type Taints struct {
	Node   string   `json:"node"`
	Add    []string `json:"add"`
	Remove []string `json:"remove"`
}

// Eviction is the eviction of one pod.
type Eviction struct {
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	UID       string  `json:"uid"`
	After     float64 `json:"after"` // seconds from the taint's TimeAdded to the frame's time
}

// Event is an event of an object: Node/NAME or Pod/NAMESPACE/NAME.
type Event struct {
	Object  string `json:"object"`
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func newOutput(f *Frame, actions *lifecycle.Actions) *Output {
	o := &Output{
		Time: f.Time, Status: []Status{}, Labels: []Labels{}, Taints: []Taints{},
		PodsNotReady: []string{}, Evict: []Eviction{},
		Events: []Event{}, Zones: actions.Zones, Doubt: actions.Doubt,
	}
	for i := range actions.Status {
		w := Status{Node: actions.Status[i].Node}
		for _, c := range actions.Status[i].Conditions {
			w.Conditions = append(w.Conditions, Condition{c.Type, c.Status, c.Reason, c.Message})
		}
		o.Status = append(o.Status, w)
	}
	for _, w := range actions.Labels {
		o.Labels = append(o.Labels, Labels{w.Node, w.Set})
	}
	for i := range actions.Taints {
		w := &actions.Taints[i]
		o.Taints = append(o.Taints, Taints{w.Node, taintKeys(w.Add), taintKeys(w.Remove)})
	}
	for _, m := range actions.Marks {
		o.PodsNotReady = append(o.PodsNotReady, m.Namespace+"/"+m.Name)
	}
	return o
}

func taintKeys(taints []v1.Taint) []string {
	out := make([]string, 0, len(taints))
	for i := range taints {
		out = append(out, taints[i].Key+":"+string(taints[i].Effect))
	}
	return out
}

// addEvictions adds the evictions, all events and the next deadline.
func (o *Output) addEvictions(evictions *taint.Actions, actions *lifecycle.Actions) {
	for i := range evictions.Evict {
		e := &evictions.Evict[i]
		o.Evict = append(o.Evict, Eviction{e.Namespace, e.Name, string(e.UID), e.After.Seconds()})
	}
	events := append(actions.Events, evictions.Events...)
	cluster.SortEvents(events)
	for i := range events {
		o.Events = append(o.Events, Event{events[i].Object(), events[i].Type, events[i].Reason,
			events[i].Message})
	}
	next := actions.Next
	cluster.Earliest(&next, evictions.Next)
	if !next.IsZero() {
		text := next.UTC().Format(time.RFC3339Nano)
		o.Next = &text
	}
}
