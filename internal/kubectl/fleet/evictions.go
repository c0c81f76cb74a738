package fleet

import (
	"cmp"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// Eviction is an eviction, or with DryRun one that the agent only recorded.
type Eviction struct {
	Time      time.Time `json:"time"`
	Node      string    `json:"node"`
	Namespace string    `json:"namespace,omitempty"` // empty: unknown
	Pod       string    `json:"pod,omitempty"`       // name, or uid:UID; empty: unknown
	// Signal is the signal of the threshold. An event names only the resource that was short.
	Signal  string `json:"signal"`
	Outcome string `json:"outcome,omitempty"` // empty: unknown
	DryRun  bool   `json:"dryRun,omitempty"`
	// Times is the number of shortages that the eviction stands for: a dry run records those of a day
	// together. Last is the time of the newest.
	Times  int       `json:"times"`
	Last   time.Time `json:"last"`
	Record string    `json:"record,omitempty"` // ID of the agent's record; empty: unknown
}

// Reasons of the events of evicted pods, and the annotation that names the resource: the kubelet's.
const (
	reasonEvicted    = "Evicted"
	reasonPreempting = "Preempting"
	starvedResource  = "starved_resource"
)

// FromEvent returns the eviction that an event of a bridge reports. !ok: it reports another fact.
func FromEvent(e *v1.Event) (out Eviction, ok bool) {
	if e.Source.Component != Component || e.InvolvedObject.Kind != "Pod" {
		return out, false
	}
	out = Eviction{Time: eventTime(e), Node: e.Source.Host, Namespace: e.InvolvedObject.Namespace,
		Pod: e.InvolvedObject.Name, Times: 1, Last: eventTime(e)}
	switch e.Reason {
	case reasonEvicted:
		out.Signal = cmp.Or(e.Annotations[starvedResource], "the pod's own limit")
	case reasonPreempting:
		out.Signal = "preemption"
	default:
		return out, false
	}
	return out, true
}

// FromRecord returns the eviction of a record. !ok: the line reports lost records.
func FromRecord(node string, r *api.Record) (out Eviction, ok bool) {
	if r.Outcome == api.OutcomeLost {
		return out, false
	}
	out = Eviction{Time: r.Began.Time, Node: node, Namespace: r.Pod.Namespace, Pod: r.Pod.Name,
		Signal: string(r.Signal), Outcome: r.Outcome.String(), Record: r.ID,
		DryRun: r.DryRun || r.Outcome == api.OutcomeDryRun, Times: 1 + r.Repeats, Last: r.Began.Time}
	if r.LastDecided.After(out.Last) {
		out.Last = r.LastDecided
	}
	if out.Pod == "" {
		out.Pod = r.Pod.Title()
	}
	switch {
	case r.StatusReason == reasonPreempting:
		out.Signal = "preemption"
	case out.Signal == "":
		out.Signal = "the pod's own limit"
	}
	return out, true
}
