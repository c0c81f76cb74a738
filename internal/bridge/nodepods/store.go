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

// store is the copy of the node's pods, filled by a reflector, with the changes that the agent has
// not received.
type store struct {
	kubefeed.Feed[*v1.Pod]
	changed func()
	wake    chan struct{} // one slot: there are changes to send

	mu           sync.Mutex
	pods         map[key]storedPod
	bytes        int       // size of all pods
	synced       time.Time // zero: not yet
	lastActivity time.Time // when the watch last received anything
	full         bool      // all pods are to be sent
	dirty        map[types.UID]*v1.Pod
	gone         map[types.UID]struct{}
}

type key struct{ namespace, name string }

// storedPod is a pod of the copy. It is immutable.
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
		Texts: kubefeed.ErrorTexts{
			Put:  "update a pod of this node: watch sent a",
			Drop: "delete a pod of this node: watch sent a",
			List: "replace the pods of this node: list contains a",
		},
		Put: s.put, Drop: s.drop, List: s.list, Activity: s.touch, NewReducer: NewListReducer,
	}
	return s
}

// NewListReducer returns a function that reduces the pods of one list while they are read. Once the
// list exceeds maxBytes, it reduces ended and large pods to the minimum.
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

// put adds or updates a pod.
func (s *store) put(p *v1.Pod) {
	p = Reduce(p)
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	previous := s.pods[keyOf(p)].pod
	if previous != nil && previous.UID != p.UID { // replaced while the watch was interrupted
		s.markGone(previous.UID)
	}
	if hasEnded(p) && len(s.pods) >= maxPods {
		s.set(keyOf(p), nil)
		s.markGone(p.UID)
		return
	}
	s.set(keyOf(p), p)
	defer s.fit()
	if previous == nil || previous.UID != p.UID || !sameAgentPod(previous, p) {
		s.dirty[p.UID] = p
		delete(s.gone, p.UID)
	}
}

// drop deletes a pod.
func (s *store) drop(p *v1.Pod) {
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	if stored := s.pods[keyOf(p)].pod; stored != nil && stored.UID == p.UID {
		s.set(keyOf(p), nil)
	}
	s.markGone(p.UID)
}

// markGone queues the deletion of a pod from the agent.
func (s *store) markGone(uid types.UID) {
	delete(s.dirty, uid)
	s.gone[uid] = struct{}{}
}

// list replaces all pods.
func (s *store) list(n int, all iter.Seq[*v1.Pod]) {
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	s.pods, s.bytes, s.full, s.lastActivity = make(map[key]storedPod, min(n, maxPods)), 0, true, time.Now()
	clear(s.dirty)
	clear(s.gone)
	for _, ended := range []bool{false, true} { // running pods first
		for p := range all {
			if hasEnded(p) == ended && (!ended || len(s.pods) < maxPods) {
				s.set(keyOf(p), Reduce(p))
				s.fit()
			}
		}
	}
	if s.synced.IsZero() {
		s.synced = time.Now()
	}
}

// touch records that the watch received something.
func (s *store) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastActivity = time.Now()
}

// set stores a pod; nil: it deletes the pod. The caller holds the lock.
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

// fit reduces the largest pods to the minimum if the copy is too large, ended pods first, until a
// quarter is free, so that it rarely runs. The caller holds the lock.
func (s *store) fit() {
	if s.bytes <= maxBytes {
		return
	}
	rank := func(k key) int {
		if hasEnded(s.pods[k].pod) {
			return 0
		}
		return 1
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.pods), func(a, b key) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(s.pods[b].size, s.pods[a].size))
	}) {
		stored := s.pods[k]
		switch {
		case s.bytes <= maxBytes/4*3:
			return
		case stored.minimal:
			continue
		}
		s.set(k, minimal(stored.pod))
		reduced := s.pods[k]
		reduced.minimal = true
		s.pods[k] = reduced
		if s.dirty[reduced.pod.UID] != nil {
			s.dirty[reduced.pod.UID] = reduced.pod
		}
	}
}

// activeWithin reports whether the watch received anything within the last d.
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

// Pod returns the copy of a pod; nil: no such pod. The caller must not change it.
func (p *Pods) Pod(namespace, name string) *v1.Pod { return p.store.get(namespace, name) }

func (s *store) get(namespace, name string) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[key{namespace, name}].pod
}

// Synced returns when all pods of the node were known for the first time. !ok: they are not known
// yet.
func (p *Pods) Synced() (at time.Time, ok bool) {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	return p.store.synced, !p.store.synced.IsZero()
}

// changes are the pods that the agent has not received.
type changes struct {
	full bool      // pods are all pods of the node
	pods []*v1.Pod // added or changed pods
	gone []types.UID
}

// takeChanges returns and clears the pending changes; full: all pods. !ok: the pods are not known
// yet.
func (s *store) takeChanges(full bool) (n changes, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.synced.IsZero() {
		return n, false
	}
	n.full = full || s.full
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
