package runner

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/deschedule"
)

// How long a cycle's doings count for those to come.
const (
	// A pod that was evicted is taken for one that is being deleted, though the watch has not told of
	// it.
	lagLimit = time.Minute
	// A pod whose eviction the API refused is not asked for again, so that others have their turn.
	refusedFor = 10 * time.Minute
	// An eviction in the background is taken to be under way until then without a sign of it (0.36.0:
	// assumedEvictionRequestTimeoutSeconds).
	assumedFor = 10 * time.Minute
	// Evictions are remembered for the pauses between those of one owner.
	pastFor = 24 * time.Hour
)

// refusal is a pod that the API kept.
type refusal struct {
	at  time.Time
	why string
}

// owner of pods, which is of their namespace.
type owner struct {
	namespace string
	uid       types.UID
}

// memory is what cycles leave. It belongs to the cycles.
type memory struct {
	gone     map[types.UID]time.Time
	refusals map[types.UID]refusal
	pending  map[types.UID]time.Time // in the background, since when
	owners   map[owner]time.Time
	nodes    map[string]time.Time // the last eviction from a node
}

func newMemory() *memory {
	return &memory{
		gone: map[types.UID]time.Time{}, refusals: map[types.UID]refusal{},
		pending: map[types.UID]time.Time{},
		owners:  map[owner]time.Time{}, nodes: map[string]time.Time{},
	}
}

func (m *memory) evicted(now time.Time, p *v1.Pod) {
	m.gone[p.UID], m.nodes[p.Spec.NodeName] = now, now
	for _, o := range p.OwnerReferences {
		m.owners[owner{p.Namespace, o.UID}] = now
	}
}

func (m *memory) refused(now time.Time, p *v1.Pod, err error) {
	m.refusals[p.UID] = refusal{now, err.Error()}
}

func (m *memory) requested(now time.Time, p *v1.Pod) { m.pending[p.UID] = now }

// fill adds what is remembered to a snapshot, and forgets what is over.
func (m *memory) fill(now time.Time, s *deschedule.Snapshot) {
	s.EvictedFrom, s.Pending, s.Refused = map[string]time.Time{}, map[types.UID]bool{},
		map[types.UID]string{}
	there := make(map[types.UID]bool, len(s.Pods))
	for i, p := range s.Pods {
		there[p.UID] = true
		if at, ok := m.gone[p.UID]; ok && p.DeletionTimestamp == nil && now.Sub(at) < lagLimit {
			going := *p
			going.DeletionTimestamp = &p.CreationTimestamp
			s.Pods[i] = &going
		}
		if is, asked := m.underway(now, p); is {
			s.Pending[p.UID] = asked
		}
		if r, ok := m.refusals[p.UID]; ok && now.Sub(r.at) < refusedFor {
			s.Refused[p.UID] = fmt.Sprintf("the API refused its eviction %v ago: %s",
				now.Sub(r.at).Round(time.Second), r.why)
		}
	}
	forget(m.gone, func(uid types.UID, at time.Time) bool {
		return !there[uid] && now.Sub(at) >= lagLimit
	})
	forget(m.refusals, func(uid types.UID, r refusal) bool {
		return !there[uid] || now.Sub(r.at) >= refusedFor
	})
	forget(m.pending, func(uid types.UID, _ time.Time) bool { return !there[uid] })
	forget(m.owners, func(_ owner, at time.Time) bool { return now.Sub(at) >= pastFor })
	forget(m.nodes, func(_ string, at time.Time) bool { return now.Sub(at) >= pastFor })
	for of, at := range m.owners {
		s.Evicted = append(s.Evicted, deschedule.PastEviction{Namespace: of.namespace, Owner: of.uid, At: at})
	}
	for node, at := range m.nodes {
		s.EvictedFrom[node] = at
	}
}

func forget[K comparable, V any](from map[K]V, over func(K, V) bool) {
	for key, value := range from {
		if over(key, value) {
			delete(from, key)
		}
	}
}

// underway reports whether a pod's eviction goes on in the background: it says so itself, or was
// asked for lately. asked: it was asked for. What only says so may have been made to by whoever
// owns it.
func (m *memory) underway(now time.Time, p *v1.Pod) (is, asked bool) {
	_, may := p.Annotations[requestOnly]
	_, says := p.Annotations[inProgress]
	since, asked := m.pending[p.UID]
	ended := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	if !may || ended || asked && !says && now.Sub(since) >= assumedFor {
		delete(m.pending, p.UID)
		return false, false
	}
	return says || asked, asked
}
