package podlister

import (
	"maps"
	"slices"

	"jettison/cri"
	"jettison/cri/nri"
	"jettison/stats/read"
)

// told is what the runtime has told its plugin of pods, as an index. Of pods that have not changed
// it is not made anew.
type told struct {
	of    nri.Pods
	index read.Index
	// stopped are the IDs of sandboxes that were stopped or removed, as long as a list or the plugin
	// has them. true: nothing was left of one.
	stopped map[string]bool
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

// changes are the containers of pods that were told of anew: what a list knew of them may have
// changed, as by a resize. When the runtime begins to tell, or does again, and tells of all that it
// has, these are the ones that are not what was listed last.
func (t *told) changes(now nri.Pods, listed read.Index) (ids []string) {
	for uid, l := range now {
		if t.of[uid] == l {
			continue
		}
		for i := range l.Containers {
			if c := &l.Containers[i]; len(t.of) > 0 || !isListed(c, listed[uid]) {
				ids = append(ids, c.ID)
			}
		}
	}
	return ids
}

// isListed reports whether a container is in a list as it is told of.
func isListed(c *cri.Container, in *read.Pod) bool {
	return in != nil && slices.ContainsFunc(in.Containers, func(l cri.Container) bool {
		return l.ID == c.ID && same(l.MemoryLimit, c.MemoryLimit) && same(l.CPUShares, c.CPUShares) &&
			same(l.OOMScoreAdj, c.OOMScoreAdj) && maps.Equal(l.Unified, c.Unified)
	})
}

func same[V comparable](a, b *V) bool { return a == b || a != nil && b != nil && *a == *b }

// stops remembers the sandboxes that have been stopped or removed since they were told of, and
// reports whether there is one. all: now is all that the runtime has.
func (t *told) stops(now nri.Pods, all bool) (some bool) {
	for uid, was := range t.of {
		if !all || now[uid] == was {
			continue
		}
		for i := range was.Sandboxes {
			if s := &was.Sandboxes[i]; !ready(now[uid], s) {
				t.stop(s.ID, false)
				some = true
			}
		}
	}
	for uid, is := range now {
		for i := range is.Sandboxes {
			if s := &is.Sandboxes[i]; s.Ready && t.of[uid] != is {
				delete(t.stopped, s.ID)
			}
		}
	}
	return some
}

// ready reports whether a sandbox is not stopped yet. One that never was ready, by what is told, is
// there: some runtimes have no process for a sandbox, and tell of none.
func ready(now *cri.Listing, was *cri.PodSandbox) bool {
	return now != nil && slices.ContainsFunc(now.Sandboxes, func(s cri.PodSandbox) bool {
		return s.ID == was.ID && (s.Ready || !was.Ready)
	})
}

func (t *told) stop(id string, empty bool) {
	if t.stopped == nil {
		t.stopped = map[string]bool{}
	}
	t.stopped[id] = t.stopped[id] || empty
}

// ended reports whether a sandbox was stopped, and no container of it is told of any more: it may
// be stopped before they are dead. listed counts while not every change is told, else it may be the
// older of the two; nil: it does not.
func (t *told) ended(uid, id string, listed read.Index) bool {
	empty, stopped := t.stopped[id]
	if !stopped {
		return false
	}
	of := func(c cri.Container) bool { return c.SandboxID == id }
	if p := t.index[uid]; p != nil && slices.ContainsFunc(p.Containers, of) {
		return false
	}
	p := listed[uid]
	return empty || p == nil || !slices.ContainsFunc(p.Containers,
		func(c cri.Container) bool { return of(c) && c.State == cri.Running })
}

// forget forgets the sandboxes that nobody has any more.
func (t *told) forget(listed read.Index) {
	if len(t.stopped) == 0 {
		return
	}
	kept := map[string]bool{}
	for _, index := range []read.Index{listed, t.index} {
		for _, p := range index {
			for i := range p.Sandboxes {
				if empty, stopped := t.stopped[p.Sandboxes[i].ID]; stopped {
					kept[p.Sandboxes[i].ID] = empty
				}
			}
		}
	}
	t.stopped = kept
}

// overlay is what the runtime listed, with what its events have told since. A pod that the list
// names with all the sandboxes and containers that the events know is taken from the list, which
// knows more of it: attempts, times, mounts, logs. Neither argument is changed; where there is
// nothing to add, the list itself is returned. What ended after the list was made stays until the
// next one: its cgroup tells meanwhile, and told what of it holds no room.
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
