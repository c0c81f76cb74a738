package nri

import (
	"maps"
	"slices"

	"jettison/cri"
	"jettison/stats/read"
)

// Limits of what is kept of a runtime. A node runs some hundred pods.
const (
	maxPods       = 4096
	maxContainers = 16384
)

// sandbox is one sandbox with its containers that are not dead.
type sandbox struct {
	cri.PodSandbox
	containers []cri.Container
}

// index is what the events have told. It is used by the plugin's goroutine only; what snapshot returned is not written again.
type index struct {
	sandboxes  map[string]*sandbox   // by ID
	pods       map[string][]*sandbox // by UID
	containers int
	skipped    uint64              // pods, containers and events that were malformed, or one too many
	dirty      map[string]struct{} // UIDs that changed since current was made
	current    read.Index
}

func newIndex() *index {
	return &index{sandboxes: map[string]*sandbox{}, pods: map[string][]*sandbox{}, dirty: map[string]struct{}{}, current: read.Index{}}
}

// synchronized is an index of what a Synchronize listed.
func synchronized(l *listing) *index {
	x := newIndex()
	x.skipped = l.skipped
	for _, p := range l.pods {
		// The state of a sandbox is not told, and dead ones are listed (containerd 2.4 internal/cri/nri, ListPodSandboxes). A
		// dead one has neither a process nor a container.
		p.Ready = p.PID > 0
		x.put(p)
	}
	for _, c := range l.containers {
		if s := x.sandboxes[c.SandboxID]; s != nil && c.State != cri.Exited {
			s.Ready = true
			x.start(s, c)
		}
	}
	x.snapshot()
	return x
}

// put adds a sandbox, or changes one that is known, and returns it; nil: it cannot be kept.
func (x *index) put(p cri.PodSandbox) *sandbox {
	if p.ID == "" || p.UID == "" { // without a UID pods cannot be told apart, as in read.NewIndex
		return nil
	}
	s := x.sandboxes[p.ID]
	if s != nil && s.UID != p.UID {
		x.drop(p.ID)
		s = nil
	}
	if s == nil {
		if len(x.sandboxes) >= maxPods {
			x.skipped++
			return nil
		}
		s = &sandbox{PodSandbox: p}
		x.sandboxes[p.ID] = s
		x.pods[p.UID] = append(x.pods[p.UID], s)
	} else {
		p.CreatedAt, p.Ready = s.CreatedAt, s.Ready
		s.PodSandbox = p
	}
	x.dirty[p.UID] = struct{}{}
	return s
}

// stop takes a sandbox's end.
func (x *index) stop(id string) {
	if s := x.sandboxes[id]; s != nil && s.Ready {
		s.Ready, s.PID = false, 0
		x.dirty[s.UID] = struct{}{}
	}
}

// drop forgets a sandbox and its containers.
func (x *index) drop(id string) {
	s := x.sandboxes[id]
	if s == nil {
		return
	}
	x.containers -= len(s.containers)
	delete(x.sandboxes, id)
	left := slices.DeleteFunc(x.pods[s.UID], func(o *sandbox) bool { return o == s })
	if len(left) == 0 {
		delete(x.pods, s.UID)
	} else {
		x.pods[s.UID] = left
	}
	x.dirty[s.UID] = struct{}{}
}

// start adds a container, or changes one that is known.
func (x *index) start(s *sandbox, c cri.Container) {
	if c.ID == "" {
		return
	}
	c.SandboxID, c.Running = s.ID, c.State == cri.Running
	x.dirty[s.UID] = struct{}{}
	if at := s.find(c.ID); at >= 0 {
		s.containers[at] = c
		return
	}
	if x.containers >= maxContainers {
		x.skipped++
		return
	}
	x.containers++
	s.containers = append(s.containers, c)
}

// end takes a container's end. Events of what is not known say nothing.
func (x *index) end(sandboxID, id string) {
	s := x.sandboxes[sandboxID]
	if s == nil {
		return
	}
	if at := s.find(id); at >= 0 {
		s.containers = slices.Delete(s.containers, at, at+1)
		x.containers--
		x.dirty[s.UID] = struct{}{}
	}
}

func (s *sandbox) find(id string) int {
	return slices.IndexFunc(s.containers, func(c cri.Container) bool { return c.ID == id })
}

// snapshot is the pods as of now. Pods that did not change are shared with the one before.
func (x *index) snapshot() read.Index {
	if len(x.dirty) == 0 {
		return x.current
	}
	next := maps.Clone(x.current)
	for uid := range x.dirty {
		delete(next, uid)
		var l cri.Listing
		for _, s := range x.pods[uid] {
			l.Sandboxes = append(l.Sandboxes, s.PodSandbox)
			l.Containers = append(l.Containers, s.containers...)
		}
		if p := read.NewIndex(l)[uid]; p != nil {
			next[uid] = p
		}
	}
	clear(x.dirty)
	x.current = next
	return next
}

// Overlay is what the runtime listed, with what its events have told since. A pod that the list names with all the sandboxes
// and containers that the events know is taken from the list, which knows more of it: attempts, times, mounts, logs. Neither
// argument is changed; where there is nothing to add, the list itself is returned. What ended after the list was made stays
// until the next one: its cgroup tells meanwhile.
func Overlay(listed, events read.Index) read.Index {
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
	l := cri.Listing{Sandboxes: listed.Sandboxes, Containers: listed.Containers}
	attempt := uint32(0)
	for _, s := range listed.Sandboxes {
		attempt = max(attempt, s.Attempt)
	}
	for _, s := range events.Sandboxes {
		if !slices.ContainsFunc(listed.Sandboxes, func(o cri.PodSandbox) bool { return o.ID == s.ID }) {
			s.Attempt = attempt + 1 // events do not tell it; the kubelet counts up
			l.Sandboxes = append(slices.Clip(l.Sandboxes), s)
		}
	}
	for _, c := range events.Containers {
		if !slices.ContainsFunc(listed.Containers, func(o cri.Container) bool { return o.ID == c.ID }) {
			l.Containers = append(slices.Clip(l.Containers), c)
		}
	}
	if len(l.Sandboxes) == len(listed.Sandboxes) && len(l.Containers) == len(listed.Containers) {
		return listed
	}
	return read.NewIndex(l)[listed.PodRef.UID]
}
