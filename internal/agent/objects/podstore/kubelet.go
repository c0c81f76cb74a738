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

// SetKubelet replaces the kubelet's pods, trimmed. Equal objects stay. It returns an error and
// changes nothing if they exceed the limits of a node.
func (s *Store) SetKubelet(pods []*v1.Pod) error {
	next := layer{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range pods {
		next[string(p.UID)] = s.kubeletEntry(p)
	}
	changed := !maps.Equal(next, s.kubelet)
	if err := s.setKubelet(next, changed); err != nil {
		return err
	}
	s.kubeletSynced = time.Now()
	return nil
}

// UpdateKubelet adds or replaces one pod of the kubelet.
func (s *Store) UpdateKubelet(p *v1.Pod) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.kubeletEntry(p)
	if s.kubelet[string(p.UID)] == e {
		return nil
	}
	next := maps.Clone(s.kubelet)
	next[string(p.UID)] = e
	return s.setKubelet(next, true)
}

// DropKubelet removes a pod that the kubelet no longer has.
func (s *Store) DropKubelet(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kubelet[uid] != nil {
		next := maps.Clone(s.kubelet)
		delete(next, uid)
		_ = s.setKubelet(next, true) // cannot exceed a limit: they are fewer
	}
}

// KubeletSynced returns the time of the kubelet's last complete list; zero: none.
func (s *Store) KubeletSynced() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kubeletSynced
}

// kubeletEntry returns the entry of a kubelet's pod: the known one if it is equal. The lock is
// held.
func (s *Store) kubeletEntry(p *v1.Pod) *entry {
	if old := s.kubelet[string(p.UID)]; old != nil && reflect.DeepEqual(old.object, p) {
		return old
	}
	return &entry{object: p, pod: eviction.NewManifestPod(p), size: podjson.Size(p)}
}

// setKubelet replaces the kubelet's layer. The lock is held.
func (s *Store) setKubelet(next layer, changed bool) error {
	memory := 0
	for _, e := range next {
		memory += e.size
	}
	if len(next) > MaxPods || memory > MaxMemory {
		return fmt.Errorf("%w: the kubelet has %d pods of %.1fMi, the limit is %d pods of %dMi",
			ErrTooLarge, len(next),
			float64(memory)/(1<<20), MaxPods, MaxMemory>>20)
	}
	if s.kubelet = next; changed {
		s.publish()
	}
	return nil
}
