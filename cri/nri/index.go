package nri

import (
	"maps"
	"slices"

	"jettison/cri"
)

// Limits of the index. A node runs some hundred pods.
const (
	maxPods       = 4096
	maxContainers = 16384
)

// sandbox is a sandbox with its containers that are not dead.
type sandbox struct {
	cri.PodSandbox
	containers []cri.Container
	asked      bool // the Asker has decided on the sandbox, or it is older than the connection
}

// Pods holds the sandboxes of each pod, and their containers that are not dead, by the pod's UID.
// The map and the listings are immutable. An unchanged pod has the same listing in consecutive
// maps.
type Pods map[string]*cri.Listing

// index holds the pods and containers known from events. Only the plugin's goroutine uses it. It
// never changes the results of snapshot.
type index struct {
	sandboxes  map[string]*sandbox   // by ID
	pods       map[string][]*sandbox // by UID
	containers int
	skipped    uint64              // pods, containers and events that were malformed or above a limit
	dirty      map[string]struct{} // UIDs changed since current was made
	current    Pods
	// Unified of the last container that had one; containers with equal values share it
	unified map[string]string
}

func newIndex() *index {
	return &index{sandboxes: map[string]*sandbox{}, pods: map[string][]*sandbox{},
		dirty: map[string]struct{}{}, current: Pods{}}
}

// synchronized returns an index of the objects that a Synchronize listed. Each listed sandbox counts
// as admitted. The lists lack ended containers (containerd 2.4 internal/cri/nri, ListContainers), so
// a running pod whose only container is down looks like a new one.
func synchronized(l *listing) *index {
	x := newIndex()
	x.skipped = l.skipped
	for _, p := range l.pods {
		// The runtime does not report the state of a sandbox, and also lists dead sandboxes (containerd
		// 2.4 internal/cri/nri, ListPodSandboxes). A dead sandbox has neither a process nor a
		// container.
		p.Ready = p.PID > 0
		if s := x.put(p); s != nil {
			s.asked = true
		}
	}
	for _, c := range l.containers {
		s := x.sandboxes[c.SandboxID]
		if s == nil {
			continue
		}
		if c.State != cri.Exited {
			s.Ready = true
			x.start(s, c)
		}
	}
	x.snapshot()
	return x
}

// put adds or updates a sandbox and returns it; nil: the sandbox was not added.
func (x *index) put(p cri.PodSandbox) *sandbox {
	if p.ID == "" || p.UID == "" { // pods without a UID cannot be distinguished
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

// stop marks a sandbox as stopped. No container starts in it any more.
func (x *index) stop(id string) {
	s := x.sandboxes[id]
	if s == nil {
		return
	}
	x.dropUnstarted(s, func(*cri.Container) bool { return true })
	if s.Ready {
		s.Ready, s.PID = false, 0
		x.dirty[s.UID] = struct{}{}
	}
}

// dropUnstarted removes matching containers of a sandbox that were created and never started.
func (x *index) dropUnstarted(s *sandbox, matches func(*cri.Container) bool) {
	before := len(s.containers)
	s.containers = slices.DeleteFunc(s.containers, func(c cri.Container) bool {
		return c.State == cri.Created && matches(&c)
	})
	if dropped := before - len(s.containers); dropped > 0 {
		x.containers -= dropped
		x.dirty[s.UID] = struct{}{}
	}
}

// drop removes a sandbox and its containers.
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

// start adds a container, or updates a known one.
func (x *index) start(s *sandbox, c cri.Container) {
	if c.ID == "" {
		return
	}
	c.SandboxID, c.Running = s.ID, c.State == cri.Running
	if maps.Equal(c.Unified, x.unified) { // a kubelet sets the same values for all containers
		c.Unified = x.unified
	} else if len(c.Unified) > 0 {
		x.unified = c.Unified
	}
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

// end removes a container. It ignores an unknown container.
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

// isAlive reports whether a pod has a sandbox that is not stopped, or a container that is not dead.
func (x *index) isAlive(uid string) bool {
	return slices.ContainsFunc(x.pods[uid], func(s *sandbox) bool {
		return s.Ready || len(s.containers) > 0
	})
}

func (s *sandbox) find(id string) int {
	return slices.IndexFunc(s.containers, func(c cri.Container) bool { return c.ID == id })
}

// snapshot returns the current pods. Unchanged pods are shared with the previous snapshot.
func (x *index) snapshot() Pods {
	if len(x.dirty) == 0 {
		return x.current
	}
	next := maps.Clone(x.current)
	for uid := range x.dirty {
		delete(next, uid)
		if len(x.pods[uid]) == 0 {
			continue
		}
		l := &cri.Listing{}
		for _, s := range x.pods[uid] {
			l.Sandboxes = append(l.Sandboxes, s.PodSandbox)
			l.Containers = append(l.Containers, s.containers...)
		}
		next[uid] = l
	}
	clear(x.dirty)
	x.current = next
	return next
}
