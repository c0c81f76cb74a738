package runner

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/deschedule"
)

// How long results of a cycle affect later cycles.
const (
	// An evicted pod is treated as being deleted until the watch reports its deletion timestamp.
	watchLag = time.Minute
	// A pod with a rejected eviction is skipped, so that other pods get their turn within the
	// limits.
	rejectionPeriod = 10 * time.Minute
	// A pod whose eviction a broken webhook prevents is skipped for this long, then for twice as
	// long after each failure, up to rejectionPeriod.
	failurePeriod = time.Minute
	// An eviction in the background is assumed to be in progress for this long even if the pod does
	// not report it (0.36.0: assumedEvictionRequestTimeoutSeconds).
	backgroundTimeout = 10 * time.Minute
	// Evictions are kept for ownerPause, and moves so that one without effect is not repeated.
	ownerHistory = 24 * time.Hour
)

// rejection is a rejected or failed eviction of a pod.
type rejection struct {
	at     time.Time
	period time.Duration // the pod is skipped for this long
	result string        // "rejected by the API server" or "failed"
	reason string
}

// owner identifies an owner of pods within their namespace.
type owner struct {
	namespace string
	uid       types.UID
}

// history is the state that cycles leave for later ones. Only cycles access it.
type history struct {
	evictedPods map[types.UID]time.Time
	rejections  map[types.UID]rejection
	// evictions in the background, with the time of the request
	pending        map[types.UID]time.Time
	ownerEvictions map[owner]time.Time
	// time of the last eviction from a node
	nodeEvictions map[string]time.Time
	// the last move of an owner's pod from a node
	moves map[ownerNode]deschedule.PastMove
}

type ownerNode struct {
	owner
	node string
}

func newHistory() *history {
	return &history{
		evictedPods: map[types.UID]time.Time{}, rejections: map[types.UID]rejection{},
		pending:        map[types.UID]time.Time{},
		ownerEvictions: map[owner]time.Time{}, nodeEvictions: map[string]time.Time{},
		moves: map[ownerNode]deschedule.PastMove{},
	}
}

func (m *history) addEvicted(now time.Time, e *deschedule.Eviction) {
	p := e.Pod
	for _, move := range e.Moves {
		move.At = now
		m.moves[ownerNode{owner{move.Namespace, move.Owner}, move.Node}] = move
	}
	m.evictedPods[p.UID], m.nodeEvictions[p.Spec.NodeName] = now, now
	for _, o := range p.OwnerReferences {
		m.ownerEvictions[owner{p.Namespace, o.UID}] = now
	}
}

func (m *history) addRejected(now time.Time, p *v1.Pod, err error) {
	m.rejections[p.UID] = rejection{now, rejectionPeriod, "rejected by the API server", err.Error()}
}

func (m *history) addFailed(now time.Time, p *v1.Pod, err error) {
	period := min(max(2*m.rejections[p.UID].period, failurePeriod), rejectionPeriod)
	m.rejections[p.UID] = rejection{now, period, "failed", err.Error()}
}

func (m *history) addBackground(now time.Time, p *v1.Pod) { m.pending[p.UID] = now }

// fill adds the history to a snapshot and removes expired entries.
func (m *history) fill(now time.Time, s *deschedule.Snapshot) {
	s.EvictedFrom, s.Pending = map[string]time.Time{}, map[types.UID]bool{}
	if s.Rejected == nil {
		s.Rejected = map[types.UID]string{}
	}
	present := make(map[types.UID]bool, len(s.Pods))
	for i, p := range s.Pods {
		present[p.UID] = true
		if at, ok := m.evictedPods[p.UID]; ok && p.DeletionTimestamp == nil && now.Sub(at) < watchLag {
			deleting := *p
			deleting.DeletionTimestamp = &p.CreationTimestamp
			s.Pods[i] = &deleting
		}
		if background, requested := m.inBackground(now, p); background {
			s.Pending[p.UID] = requested
		}
		if r, ok := m.rejections[p.UID]; ok && now.Sub(r.at) < r.period {
			s.Rejected[p.UID] = fmt.Sprintf("eviction %s %v ago: %s", r.result,
				now.Sub(r.at).Round(time.Second), r.reason)
		}
	}
	prune(m.evictedPods, func(uid types.UID, at time.Time) bool {
		return !present[uid] && now.Sub(at) >= watchLag
	})
	prune(m.rejections, func(uid types.UID, r rejection) bool {
		return !present[uid] || now.Sub(r.at) >= r.period+rejectionPeriod // then the backoff restarts
	})
	prune(m.pending, func(uid types.UID, _ time.Time) bool { return !present[uid] })
	prune(m.ownerEvictions, func(_ owner, at time.Time) bool { return now.Sub(at) >= ownerHistory })
	prune(m.nodeEvictions, func(_ string, at time.Time) bool { return now.Sub(at) >= ownerHistory })
	prune(m.moves, func(_ ownerNode, move deschedule.PastMove) bool {
		return now.Sub(move.At) >= ownerHistory
	})
	s.Moves = slices.Collect(maps.Values(m.moves))
	for key, at := range m.ownerEvictions {
		s.Evicted = append(s.Evicted, deschedule.PastEviction{Namespace: key.namespace, Owner: key.uid, At: at})
	}
	for node, at := range m.nodeEvictions {
		s.EvictedFrom[node] = at
	}
}

func prune[K comparable, V any](from map[K]V, over func(K, V) bool) {
	for key, value := range from {
		if over(key, value) {
			delete(from, key)
		}
	}
}

// inBackground reports whether a pod's eviction is in progress in the background: the pod has the
// annotation for it, or this process requested the eviction recently. requested is true in the
// second case only: the owner of a pod can set the annotation.
func (m *history) inBackground(now time.Time, p *v1.Pod) (pending, requested bool) {
	_, annotated := p.Annotations[requestOnly]
	_, reported := p.Annotations[inProgress]
	since, requested := m.pending[p.UID]
	ended := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	if !annotated || ended || requested && !reported && now.Sub(since) >= backgroundTimeout {
		delete(m.pending, p.UID)
		return false, false
	}
	return reported || requested, requested
}
