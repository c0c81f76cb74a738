// Package apiconvert converts values of the decision core (package eviction) to those of the API
// (package api), for the agent's socket and for commands that read the node themselves.
//
//	apiconvert.go  Signal, Outlook
//	load.go        Load
package apiconvert

import (
	"cmp"
	"slices"

	"jettison/api"
	"jettison/eviction"
	"jettison/stats"
)

// Signal converts the state of a signal.
func Signal(s *eviction.SignalState) api.SignalState {
	o := s.Observed
	out := api.SignalState{
		Signal: s.Signal, Observed: o.OK, Available: o.Value, Capacity: o.Capacity, Reason: o.Reason,
		Threshold: s.Thresholds,
		Limits:    s.Limits,
	}
	if o.OK && !o.Time.IsZero() {
		out.Time = &o.Time
	}
	return out
}

// maxNamed bounds the pods of one ranking, and of one reason for protection.
const maxNamed = 100

// Outlook converts the outlook of a threshold: the pods that it would evict. name formats a pod.
func Outlook(t *eviction.Outlook, name func(stats.PodReference) string) api.ThresholdOutlook {
	out := api.ThresholdOutlook{
		Signal: t.Threshold.Signal, Threshold: t.Threshold.Text(), Limit: t.Limit, Met: t.Met,
		NoEvictionReason: t.NoEvictionReason,
		Ranking:          []api.RankedPod{}, Protected: []api.ProtectedPods{},
		More: max(0, len(t.Ranking)-maxNamed),
	}
	if observed := t.Observed; observed.OK {
		out.Observed = &observed.Value
	}
	for i := range t.Ranking[:min(len(t.Ranking), maxNamed)] {
		out.Ranking = append(out.Ranking, ranked(&t.Ranking[i], name))
	}
	if at := t.DiskUsageTime(); !at.IsZero() {
		out.DiskUsageTime = &at
	}
	by := map[string][]string{}
	for i := range t.Protected {
		c := &t.Protected[i]
		by[c.Protected] = append(by[c.Protected], name(c.Pod.PodRef))
	}
	for why, pods := range by {
		slices.Sort(pods)
		named := pods[:min(len(pods), maxNamed)]
		out.Protected = append(out.Protected, api.ProtectedPods{Reason: why, Pods: named,
			More: len(pods) - len(named)})
	}
	slices.SortFunc(out.Protected, func(a, b api.ProtectedPods) int {
		return cmp.Compare(a.Reason, b.Reason)
	})
	return out
}

func ranked(r *eviction.Ranked, name func(stats.PodReference) string) api.RankedPod {
	ref := r.Pod.PodRef
	pod := api.RankedPod{Candidate: api.Candidate{
		Pod: name(ref), UID: ref.UID, QOSClass: cmp.Or(r.Keys.QOSClass, r.Pod.QOSClass),
		DecidedBy: r.DecidedBy, Keys: r.Explain(),
	}}
	if priority := r.Keys.Priority; priority.OK {
		pod.Priority = &priority.V
	}
	if freed := r.Pod.Memory.FreedBytes; freed.OK {
		pod.Releases = &freed.V.Min
	}
	return pod
}
