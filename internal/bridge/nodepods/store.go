package nodepods

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// store is the copy of the node's pods, and what of it the agent has not been told. It is what a reflector fills.
type store struct {
	changed func()
	wake    chan struct{} // one slot: there is something to tell

	mu     sync.Mutex
	pods   map[key]*v1.Pod
	synced time.Time // zero: not yet
	heard  time.Time // when the watch last said something
	all    bool      // everything is to be told anew
	dirty  map[types.UID]*v1.Pod
	gone   map[types.UID]struct{}
}

type key struct{ namespace, name string }

func keyOf(p *v1.Pod) key { return key{p.Namespace, p.Name} }

func newStore(changed func()) *store {
	if changed == nil {
		changed = func() {}
	}
	return &store{
		changed: changed, wake: make(chan struct{}, 1), pods: map[key]*v1.Pod{},
		dirty: map[types.UID]*v1.Pod{}, gone: map[types.UID]struct{}{},
	}
}

// Transformer has pods cut that a list as a watch gathers before it hands them over; what a list or a watch hands over it does not touch.
func (s *store) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if p, ok := o.(*v1.Pod); ok {
			return keep(p), nil
		}
		return o, nil
	}
}

// Add is of a pod that came to the node.
func (s *store) Add(o any) error { return s.Update(o) }

// Update is of a pod that is another now.
func (s *store) Update(o any) error {
	p, ok := o.(*v1.Pod)
	if !ok {
		return fmt.Errorf("take a pod of this node: the watch gives a %T", o)
	}
	p = keep(p)
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	s.heard = time.Now()
	was := s.pods[keyOf(p)]
	s.pods[keyOf(p)] = p
	if was != nil && was.UID != p.UID { // deleted and made anew while nobody watched
		s.leave(was.UID)
	}
	if was == nil || was.UID != p.UID || !sameForAgent(was, p) {
		s.dirty[p.UID] = p
		delete(s.gone, p.UID)
	}
	return nil
}

// Delete is of a pod that is no more.
func (s *store) Delete(o any) error {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	p, ok := o.(*v1.Pod)
	if !ok {
		return fmt.Errorf("take away a pod of this node: the watch gives a %T", o)
	}
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	s.heard = time.Now()
	if is := s.pods[keyOf(p)]; is != nil && is.UID == p.UID {
		delete(s.pods, keyOf(p))
	}
	s.leave(p.UID)
	return nil
}

// leave notes that a pod is to be taken from the agent.
func (s *store) leave(uid types.UID) {
	delete(s.dirty, uid)
	s.gone[uid] = struct{}{}
}

// Replace is of all pods that there are.
func (s *store) Replace(list []any, _ string) error {
	pods := make(map[key]*v1.Pod, len(list))
	for _, o := range list {
		p, ok := o.(*v1.Pod)
		if !ok {
			return fmt.Errorf("take the pods of this node: the list has a %T", o)
		}
		pods[keyOf(p)] = keep(p)
	}
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	s.pods, s.all, s.heard = pods, true, time.Now()
	clear(s.dirty)
	clear(s.gone)
	if s.synced.IsZero() {
		s.synced = time.Now()
	}
	return nil
}

// Bookmark is that nothing has changed.
func (s *store) Bookmark(string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
	return nil
}

// heardWithin tells that the watch has said something since.
func (s *store) heardWithin(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.heard.IsZero() && time.Since(s.heard) <= d
}

// Resync is nothing.
func (s *store) Resync() error { return nil }

func (s *store) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
	s.changed()
}

func (s *store) get(namespace, name string) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[key{namespace, name}]
}

func (s *store) syncedAt() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced, !s.synced.IsZero()
}

// news is what the agent has not been told.
type news struct {
	all  bool      // pods are all that there are
	pods []*v1.Pod // that are new, or others than before
	gone []types.UID
}

// take takes what is to be told; all: everything is. !ok: nothing is known yet.
func (s *store) take(all bool) (n news, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.synced.IsZero() {
		return n, false
	}
	n.all = all || s.all
	if n.all {
		n.pods = make([]*v1.Pod, 0, len(s.pods))
		for _, p := range s.pods {
			n.pods = append(n.pods, p)
		}
	} else {
		for _, p := range s.dirty {
			n.pods = append(n.pods, p)
		}
		for uid := range s.gone {
			n.gone = append(n.gone, uid)
		}
	}
	s.all = false
	clear(s.dirty)
	clear(s.gone)
	return n, true
}
