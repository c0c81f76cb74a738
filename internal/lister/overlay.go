package lister

import (
	"maps"
	"slices"

	"jettison/cri"
	"jettison/cri/nri"
	"jettison/stats/read"
)

// told is what the runtime has told its plugin of pods, as an index. Of pods that have not changed it is not made anew.
type told struct {
	of    nri.Pods
	index read.Index
}

// take makes the index of what was told now.
func (t *told) take(now nri.Pods) read.Index {
	next := make(read.Index, len(now))
	for uid, l := range now {
		if p := t.index[uid]; p != nil && t.of[uid] == l {
			next[uid] = p
		} else if p = read.NewIndex(*l)[uid]; p != nil {
			next[uid] = p
		}
	}
	t.of, t.index = now, next
	return next
}

// overlay is what the runtime listed, with what its events have told since. A pod that the list names with all the sandboxes
// and containers that the events know is taken from the list, which knows more of it: attempts, times, mounts, logs. Neither
// argument is changed; where there is nothing to add, the list itself is returned. What ended after the list was made stays
// until the next one: its cgroup tells meanwhile.
func overlay(listed, events read.Index) read.Index {
	out, own := listed, false
	for uid, p := range events {
		if l := listed[uid]; l != nil {
			joined := join(l, p)
			if joined == l {
				continue
			}
			p = joined
		}
		if !own {
			own = true
			if out = maps.Clone(listed); out == nil {
				out = read.Index{}
			}
		}
		out[uid] = p
	}
	return out
}

// join is a listed pod with the sandboxes and containers that only events know.
func join(listed, events *read.Pod) *read.Pod {
	var sandboxes []cri.PodSandbox
	var containers []cri.Container
	attempt := uint32(0)
	for _, s := range listed.Sandboxes {
		attempt = max(attempt, s.Attempt)
	}
	for _, s := range events.Sandboxes {
		if !slices.ContainsFunc(listed.Sandboxes, func(o cri.PodSandbox) bool { return o.ID == s.ID }) {
			s.Attempt = attempt + 1 // events do not tell it; the kubelet counts up
			sandboxes = append(sandboxes, s)
		}
	}
	for _, c := range events.Containers {
		if !slices.ContainsFunc(listed.Containers, func(o cri.Container) bool { return o.ID == c.ID }) {
			containers = append(containers, c)
		}
	}
	if len(sandboxes) == 0 && len(containers) == 0 {
		return listed
	}
	return read.NewIndex(cri.Listing{
		Sandboxes:  slices.Concat(listed.Sandboxes, sandboxes),
		Containers: slices.Concat(listed.Containers, listed.Exited, containers),
	})[listed.PodRef.UID]
}
