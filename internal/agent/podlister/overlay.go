package podlister

import (
	"maps"
	"slices"
	"time"

	"jettison/cri"
	"jettison/cri/nri"
	"jettison/stats/read"
)

// runtimeEvents is the state from the runtime's events, as an index. Unchanged pods keep their
// entries.
type runtimeEvents struct {
	pods  nri.Pods
	index read.Index
	known map[string]*knownSandbox // by ID: the sandboxes of pods
	// stopped are the IDs of sandboxes that were stopped or removed, while a list or the plugin has
	// them. true: no process of the sandbox is left.
	stopped map[string]bool
}

// knownSandbox is a sandbox that events have shown.
type knownSandbox struct {
	since   time.Time // of the first event
	missing bool      // from the last list, which began listedAfter its first event or later
}

// listedAfter is the time after its first event from which each list contains a sandbox. Runtimes
// announce a sandbox before they list it, and other plugins may take their time between.
const listedAfter = time.Minute

// update updates the index from the events.
func (t *runtimeEvents) update(at time.Time, now nri.Pods) read.Index {
	next := make(read.Index, len(now))
	known := make(map[string]*knownSandbox, len(t.known))
	for uid, l := range now {
		for i := range l.Sandboxes {
			id := l.Sandboxes[i].ID
			if known[id] = t.known[id]; known[id] == nil {
				known[id] = &knownSandbox{since: at}
			}
		}
		if p := t.index[uid]; p != nil && t.pods[uid] == l {
			next[uid] = p
		} else if p = t.withoutMissing(known, l)[uid]; p != nil {
			next[uid] = p
		}
	}
	t.pods, t.index, t.known = now, next, known
	return next
}

// withoutMissing returns a pod without its sandboxes that lists lack. A sandbox with a container is
// not missing: the runtime reports the end of each container.
func (t *runtimeEvents) withoutMissing(known map[string]*knownSandbox, l *cri.Listing) read.Index {
	here := *l
	here.Sandboxes = slices.DeleteFunc(slices.Clone(l.Sandboxes), func(s cri.PodSandbox) bool {
		return known[s.ID].missing && !slices.ContainsFunc(l.Containers,
			func(c cri.Container) bool { return c.SandboxID == s.ID })
	})
	return read.NewIndex(here)
}

// dropMissing removes the sandboxes that a list lacks and that are no longer new. A containerd that
// was restarted sends no event for the end of the sandboxes from before (2.4.2 internal/nri/nri.go
// syncPlugin restores the states of containers only), and CRI-O none for a sandbox whose start it
// gives up. A list that may lack sandboxes, with a zero began, shows the end of none.
func (t *runtimeEvents) dropMissing(listed read.Index, began time.Time) {
	if began.IsZero() {
		return
	}
	for uid, l := range t.pods {
		changed := false
		for i := range l.Sandboxes {
			id := l.Sandboxes[i].ID
			k := t.known[id]
			missing := began.Sub(k.since) >= listedAfter && !hasSandbox(listed[uid], id)
			changed = changed || missing != k.missing
			k.missing = missing
		}
		if !changed {
			continue
		}
		delete(t.index, uid)
		if p := t.withoutMissing(t.known, l)[uid]; p != nil {
			t.index[uid] = p
		}
	}
}

func hasSandbox(p *read.Pod, id string) bool {
	return p != nil &&
		slices.ContainsFunc(p.Sandboxes, func(s cri.PodSandbox) bool { return s.ID == id })
}

// changedContainers returns the IDs of the containers of changed pods: listed data on them may be
// outdated, as after a resize. When events begin, or begin again with all pods, these are the
// containers that differ from the last list.
func (t *runtimeEvents) changedContainers(now nri.Pods, listed read.Index) (ids []string) {
	for uid, l := range now {
		if t.pods[uid] == l {
			continue
		}
		for i := range l.Containers {
			if c := &l.Containers[i]; len(t.pods) > 0 || !isListed(c, listed[uid]) {
				ids = append(ids, c.ID)
			}
		}
	}
	return ids
}

// isListed reports whether a list contains a container with the same data.
func isListed(c *cri.Container, in *read.Pod) bool {
	return in != nil && slices.ContainsFunc(in.Containers, func(l cri.Container) bool {
		return l.ID == c.ID && equalPtr(l.MemoryLimit, c.MemoryLimit) &&
			equalPtr(l.CPUShares, c.CPUShares) &&
			equalPtr(l.OOMScoreAdj, c.OOMScoreAdj) && maps.Equal(l.Unified, c.Unified)
	})
}

func equalPtr[V comparable](a, b *V) bool { return a == b || a != nil && b != nil && *a == *b }

// recordStopped records the sandboxes that events show as stopped or removed, and reports whether
// there is any. all: now contains all pods of the runtime.
func (t *runtimeEvents) recordStopped(now nri.Pods, all bool) (some bool) {
	for uid, was := range t.pods {
		if !all || now[uid] == was {
			continue
		}
		for i := range was.Sandboxes {
			if s := &was.Sandboxes[i]; !ready(now[uid], s) {
				t.markStopped(s.ID, false)
				some = true
			}
		}
	}
	for uid, is := range now {
		for i := range is.Sandboxes {
			if s := &is.Sandboxes[i]; s.Ready && t.pods[uid] != is {
				delete(t.stopped, s.ID)
			}
		}
	}
	return some
}

// ready reports whether a sandbox is not stopped yet. A sandbox that never was ready counts as
// ready: some runtimes have no process for a sandbox, and report none.
func ready(now *cri.Listing, was *cri.PodSandbox) bool {
	return now != nil && slices.ContainsFunc(now.Sandboxes, func(s cri.PodSandbox) bool {
		return s.ID == was.ID && (s.Ready || !was.Ready)
	})
}

func (t *runtimeEvents) markStopped(id string, empty bool) {
	if t.stopped == nil {
		t.stopped = map[string]bool{}
	}
	t.stopped[id] = t.stopped[id] || empty
}

// ended reports whether a sandbox was stopped and events show none of its containers any more: it
// may be stopped before they are dead. listed counts only while events are incomplete, because
// otherwise it may be older than they are; nil: it does not count.
func (t *runtimeEvents) ended(uid, id string, listed read.Index) bool {
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

// forget drops the sandboxes that neither the list nor the events contain.
func (t *runtimeEvents) forget(listed read.Index) {
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

// overlay returns the listed pods with the additions from events. A listed pod that has all
// sandboxes and containers known from events is used as listed, because the list has more data:
// attempts, times, mounts, logs. Neither argument is changed; without additions the list itself is
// returned. Pods that ended after the list stay until the next one: meanwhile their cgroup shows
// it, and runtimeEvents shows that they hold no resources.
func overlay(listed, events read.Index) read.Index {
	out, own := listed, false
	for uid, p := range events {
		if l := listed[uid]; l != nil {
			joined := mergePod(l, p)
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

// mergePod returns a listed pod with the sandboxes and containers that only events contain. A
// container never runs again after its end, so one that the list shows as exited is not added:
// containerd may report its start after its end (2.4.2 internal/cri/server/container_start.go
// starts the exit monitor before PostStartContainer).
func mergePod(listed, events *read.Pod) *read.Pod {
	var sandboxes []cri.PodSandbox
	var containers []cri.Container
	attempt := uint32(0)
	for _, s := range listed.Sandboxes {
		attempt = max(attempt, s.Attempt)
	}
	for _, s := range events.Sandboxes {
		if !hasSandbox(listed, s.ID) {
			s.Attempt = attempt + 1 // events lack it; the kubelet counts up
			sandboxes = append(sandboxes, s)
		}
	}
	for _, c := range events.Containers {
		same := func(o cri.Container) bool { return o.ID == c.ID }
		if !slices.ContainsFunc(listed.Containers, same) && !slices.ContainsFunc(listed.Exited, same) {
			containers = append(containers, c)
		}
	}
	if len(sandboxes) == 0 && len(containers) == 0 {
		return listed
	}
	out := read.NewIndex(cri.Listing{
		Sandboxes:  slices.Concat(listed.Sandboxes, sandboxes),
		Containers: slices.Concat(listed.Containers, listed.Exited, containers),
	})[listed.PodRef.UID]
	out.Outside, out.Unlocated, out.Self = listed.Outside, listed.Unlocated, listed.Self
	return out
}
