package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// findingAge is the age up to which a finding is a problem: a bridge repeats its event every ten
// minutes while the finding lasts.
const findingAge = 20 * time.Minute

// findings lists the reasons of events that are problems of the node, and for how long.
var findings = map[string]time.Duration{
	"EvictionsStopped": findingAge, "EvictionHeadroomTooSmall": findingAge,
	"GarbageCollectionFailed": findingAge,
	"EvictionRecordsLost":     time.Hour, "EvictionAbandoned": time.Hour, "EvictionOutlived": time.Hour,
}

// findProblems lists the problems of the node, each in one line.
func (r *reader) findProblems() {
	add := func(format string, args ...any) {
		r.out.Problems = append(r.out.Problems, fmt.Sprintf(format, args...))
	}
	if r.out.Ready != string(v1.ConditionTrue) {
		add("node not ready")
	}
	if text := r.out.Agent.problem(); text != "" {
		add("%s", text)
	}
	for _, c := range r.out.Conditions {
		if c.Status != string(v1.ConditionFalse) {
			add("%s %s: %s", c.Type, c.Status, c.Message)
		}
	}
	if r.lease != nil && r.out.Load == nil {
		add("no load: %s", r.out.Unknown[FieldLoad])
	}
	latest := map[string]*v1.Event{}
	for _, e := range r.events {
		maxAge, known := findings[e.Reason]
		if !known || r.now.Sub(eventTime(e)) > maxAge {
			continue
		}
		key := e.Reason + " " + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
		if was := latest[key]; was == nil || eventTime(was).Before(eventTime(e)) {
			latest[key] = e
		}
	}
	sorted := make([]*v1.Event, 0, len(latest))
	for _, e := range latest {
		sorted = append(sorted, e)
	}
	slices.SortFunc(sorted, func(a, b *v1.Event) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.InvolvedObject.Namespace,
			b.InvolvedObject.Namespace), cmp.Compare(a.InvolvedObject.Name, b.InvolvedObject.Name))
	})
	for _, e := range sorted {
		if e.InvolvedObject.Kind == "Pod" {
			add("%s %s/%s: %s", e.Reason, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Message)
			continue
		}
		add("%s: %s", e.Reason, e.Message)
	}
}

// eventTime returns when an event occurred.
func eventTime(e *v1.Event) time.Time {
	for _, at := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time} {
		if !at.IsZero() {
			return at
		}
	}
	return e.CreationTimestamp.Time
}
