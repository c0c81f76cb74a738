package nodepods

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/internal/base/podjson"
	"jettison/internal/kube/kubefeed"
)

// store is the copy of the node's pods, and what of it the agent has not been told. It is what a
// reflector fills.
type store struct {
	kubefeed.Feed[*v1.Pod]
	changed func()
	wake    chan struct{} // one slot: there is something to tell

	mu           sync.Mutex
	pods         map[key]storedPod
	bytes        int       // of all of these
	synced       time.Time // zero: not yet
	lastActivity time.Time // when the watch last said something
	full         bool      // everything is to be told anew
	dirty        map[types.UID]*v1.Pod
	gone         map[types.UID]struct{}
}

type key struct{ namespace, name string }

// kept is a pod of the copy. It is never changed.
type storedPod struct {
	pod     *v1.Pod
	size    int
	minimal bool
}

func keyOf(p *v1.Pod) key { return key{p.Namespace, p.Name} }

func newStore(changed func()) *store {
	if changed == nil {
		changed = func() {}
	}
	s := &store{
		changed: changed, wake: make(chan struct{}, 1), pods: map[key]storedPod{},
		dirty: map[types.UID]*v1.Pod{}, gone: map[types.UID]struct{}{},
	}
	s.Feed = kubefeed.Feed[*v1.Pod]{
		Texts: kubefeed.Texts{
			Put:  "take a pod of this node: the watch gives a",
			Drop: "take away a pod of this node: the watch gives a",
			List: "take the pods of this node: the list has a",
		},
		Put: s.put, Drop: s.drop, List: s.list, Heard: s.touch, Cut: NewListReducer,
	}
	return s
}

// Cutter is what cuts the pods of one list while they are gathered: what is kept of each, and the
// least of large ones where all are too much.
func NewListReducer() func(*v1.Pod) *v1.Pod {
	gathered := 0 // bytes
	return func(p *v1.Pod) *v1.Pod {
		p = Reduce(p)
		size := podjson.Size(p)
		if gathered += size; gathered > maxBytes && (hasEnded(p) || size > ordinarySize) {
			p = minimal(p)
		}
		return p
	}
}

// put takes a pod that is new or another now.
func (s *store) put(p *v1.Pod) {
	p = Reduce(p)
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	was := s.pods[keyOf(p)].pod
	if was != nil && was.UID != p.UID { // deleted and made anew while nobody watched
		s.markGone(was.UID)
	}
	if hasEnded(p) && len(s.pods) >= maxPods {
		s.set(keyOf(p), nil)
		s.markGone(p.UID)
		return
	}
	s.set(keyOf(p), p)
	defer s.fit()
	if was == nil || was.UID != p.UID || !sameAgentPod(was, p) {
		s.dirty[p.UID] = p
		delete(s.gone, p.UID)
	}
}

// drop takes a pod away that is no more.
func (s *store) drop(p *v1.Pod) {
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	if is := s.pods[keyOf(p)].pod; is != nil && is.UID == p.UID {
		s.set(keyOf(p), nil)
	}
	s.markGone(p.UID)
}

// leave notes that a pod is to be taken from the agent.
func (s *store) markGone(uid types.UID) {
	delete(s.dirty, uid)
	s.gone[uid] = struct{}{}
}

// list takes all pods that there are.
func (s *store) list(n int, all iter.Seq[*v1.Pod]) {
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	s.pods, s.bytes, s.full, s.lastActivity = make(map[key]storedPod, min(n, maxPods)), 0, true, time.Now()
	clear(s.dirty)
	clear(s.gone)
	for _, over := range []bool{false, true} { // those that run first
		for p := range all {
			if hasEnded(p) == over && (!over || len(s.pods) < maxPods) {
				s.set(keyOf(p), Reduce(p))
				s.fit()
			}
		}
	}
	if s.synced.IsZero() {
		s.synced = time.Now()
	}
}

// hear notes that the watch has said something.
func (s *store) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastActivity = time.Now()
}

// set has a pod in the copy; nil: it takes it out. The lock is held.
func (s *store) set(k key, p *v1.Pod) {
	s.bytes -= s.pods[k].size
	if p == nil {
		delete(s.pods, k)
		return
	}
	size := podjson.Size(p)
	s.pods[k] = storedPod{pod: p, size: size}
	s.bytes += size
}

// fit has the largest pods be the least where all are too much, first those that have ended, until
// a quarter is free: so it is seldom done. The lock is held.
func (s *store) fit() {
	if s.bytes <= maxBytes {
		return
	}
	first := func(k key) int {
		if hasEnded(s.pods[k].pod) {
			return 0
		}
		return 1
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.pods), func(a, b key) int {
		return cmp.Or(cmp.Compare(first(a), first(b)), cmp.Compare(s.pods[b].size, s.pods[a].size))
	}) {
		is := s.pods[k]
		switch {
		case s.bytes <= maxBytes/4*3:
			return
		case is.minimal:
			continue
		}
		s.set(k, minimal(is.pod))
		now := s.pods[k]
		now.minimal = true
		s.pods[k] = now
		if s.dirty[now.pod.UID] != nil {
			s.dirty[now.pod.UID] = now.pod
		}
	}
}

// heardWithin tells that the watch has said something since.
func (s *store) activeWithin(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.lastActivity.IsZero() && time.Since(s.lastActivity) <= d
}

func (s *store) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
	s.changed()
}

// Pod is the copy of a pod; nil: there is none. It must not be changed.
func (p *Pods) Pod(namespace, name string) *v1.Pod { return p.store.get(namespace, name) }

func (s *store) get(namespace, name string) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[key{namespace, name}].pod
}

// Synced is when all pods of the node were known for the first time. !ok: they are not yet.
func (p *Pods) Synced() (at time.Time, ok bool) {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	return p.store.synced, !p.store.synced.IsZero()
}

// news is what the agent has not been told.
type changes struct {
	full bool      // pods are all that there are
	pods []*v1.Pod // that are new, or others than before
	gone []types.UID
}

// take takes what is to be told; all: everything is. !ok: nothing is known yet.
func (s *store) takeChanges(all bool) (n changes, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.synced.IsZero() {
		return n, false
	}
	n.full = all || s.full
	if n.full {
		n.pods = make([]*v1.Pod, 0, len(s.pods))
		for _, p := range s.pods {
			n.pods = append(n.pods, p.pod)
		}
	} else {
		for _, p := range s.dirty {
			n.pods = append(n.pods, p)
		}
		for uid := range s.gone {
			n.gone = append(n.gone, uid)
		}
	}
	s.full = false
	clear(s.dirty)
	clear(s.gone)
	return n, true
}
