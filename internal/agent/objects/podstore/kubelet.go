package podstore

import (
	"fmt"
	"maps"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/eviction"
	"jettison/internal/base/podjson"
)

// SetKubelet takes all pods that the kubelet has, trimmed, in place of what it told before. What is
// the same as before stays. An error: they are more than a node's, and nothing has changed.
func (s *Store) SetKubelet(pods []*v1.Pod) error {
	next := layer{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range pods {
		next[string(p.UID)] = s.kubelets(p)
	}
	changed := !maps.Equal(next, s.kubelet)
	if err := s.setKubelet(next, changed); err != nil {
		return err
	}
	s.told = time.Now()
	return nil
}

// UpdateKubelet takes one that is new or another by now.
func (s *Store) UpdateKubelet(p *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.kubelets(p)
	if s.kubelet[string(p.UID)] == e {
		return nil
	}
	next := maps.Clone(s.kubelet)
	next[string(p.UID)] = e
	return s.setKubelet(next, true)
}

// DropKubelet forgets one that the kubelet has no more.
func (s *Store) DropKubelet(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kubelet[uid] != nil {
		next := maps.Clone(s.kubelet)
		delete(next, uid)
		_ = s.setKubelet(next, true) // there are fewer
	}
}

// Kubelet is when the kubelet told all its pods last; zero: never.
func (s *Store) Kubelet() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
}

// kubelets is the entry of a pod that the kubelet tells, the one that there is where it says the
// same. The lock is held.
func (s *Store) kubelets(p *v1.Pod) *entry {
	if old := s.kubelet[string(p.UID)]; old != nil && reflect.DeepEqual(old.object, p) {
		return old
	}
	return &entry{object: p, pod: eviction.NewManifestPod(p), size: podjson.Size(p)}
}

// setKubelet has the lock held.
func (s *Store) setKubelet(next layer, changed bool) error {
	memory := 0
	for _, e := range next {
		memory += e.size
	}
	if len(next) > MaxPods || memory > MaxMemory {
		return fmt.Errorf("%w: the kubelet has %d pods of %.1f MiB, and the agent takes %d of %d",
			ErrTooLarge, len(next),
			float64(memory)/(1<<20), MaxPods, MaxMemory>>20)
	}
	if s.kubelet = next; changed {
		s.publish()
	}
	return nil
}
