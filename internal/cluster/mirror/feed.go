package mirror

import (
	"iter"
	"slices"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/internal/kube/kubefeed"
)

// table describes how the mirror stores objects of one kind. Its functions, except trim, are called
// with the lock held.
type table[K comparable, T any] struct {
	name    string // of one object, for errors
	source  *source
	objects map[K]T
	key     func(T) K
	put     func(T)   // stores an object of a watch event, unless it is older than the stored one
	set     func(T)   // stores an object of a list, of any version
	drop    func(T)   // removes an object that a watch reports as deleted
	remove  func(K)   // removes an object that is missing in a list
	trim    func(T) T // removes unused fields; called without the lock and concurrently
}

// feedOf returns the store of a reflector.
func feedOf[K comparable, T any](m *Mirror, t table[K, T]) *kubefeed.Feed[T] {
	text := "store " + t.name + ": the watch sent a"
	return &kubefeed.Feed[T]{
		Texts: kubefeed.ErrorTexts{Put: text, Drop: text, List: text},
		Put:   locked(m, t.put),
		Drop:  locked(m, t.drop),
		List: func(n int, all iter.Seq[T]) {
			m.mu.Lock()
			defer m.mu.Unlock()
			t.replace(n, all)
			t.source.setSynced()
			m.notify()
		},
		Activity:   t.source.recordEvent,
		NewReducer: func() func(T) T { return t.trim },
	}
}

func locked[T any](m *Mirror, take func(T)) func(T) {
	return func(o T) {
		m.mu.Lock()
		defer m.mu.Unlock()
		take(o)
	}
}

// replace sets the contents of the table to those of a list.
func (t *table[K, T]) replace(n int, all iter.Seq[T]) {
	listed := make(map[K]bool, n)
	for o := range all {
		listed[t.key(o)] = true
		t.set(o)
	}
	for k := range t.objects {
		if !listed[k] {
			t.remove(k)
		}
	}
}

// nodeFeed returns the store of the node watch.
func (m *Mirror) nodeFeed() *kubefeed.Feed[*v1.Node] {
	return feedOf(m, table[string, *v1.Node]{
		name: "a node", source: &m.nodeSource, objects: m.nodes, key: (*v1.Node).GetName,
		put: m.putNode, set: func(n *v1.Node) { m.setNode(m.trimmer.node(n)) },
		remove: m.deleteNode, trim: m.trimmer.node, drop: m.dropNode,
	})
}

// deleteNode removes a node of any UID. The lock must be held.
func (m *Mirror) deleteNode(name string) {
	delete(m.nodes, name)
	delete(m.beatAt, name)
	delete(m.rivalWrites, name)
}

// dropNode removes a node with that UID. The lock must be held.
func (m *Mirror) dropNode(n *v1.Node) {
	if stored := m.nodes[n.Name]; stored != nil && stored.UID == n.UID {
		m.deleteNode(n.Name)
		m.notify()
	}
}

// leaseFeed returns the store of the Lease watch. Renewals do not signal Changed.
func (m *Mirror) leaseFeed() *kubefeed.Feed[*coordination.Lease] {
	remove := func(name string) {
		delete(m.leases, name)
		delete(m.renewedAt, name)
	}
	return feedOf(m, table[string, *coordination.Lease]{
		name: "a lease", source: &m.leaseSource, objects: m.leases, key: (*coordination.Lease).GetName,
		put: m.putLease, set: func(l *coordination.Lease) { m.setLease(m.trimmer.lease(l)) }, remove: remove,
		trim: m.trimmer.lease,
		drop: func(l *coordination.Lease) {
			if stored := m.leases[l.Name]; stored != nil && stored.UID == l.UID {
				remove(l.Name)
			}
		},
	})
}

// podFeed returns the store of the pod watch.
func (m *Mirror) podFeed() *kubefeed.Feed[*v1.Pod] {
	return feedOf(m, table[types.UID, *v1.Pod]{
		name: "a pod", source: &m.podSource, objects: m.pods, key: (*v1.Pod).GetUID,
		put: m.putPod, set: func(p *v1.Pod) { m.setPod(m.trimmer.pod(p)) }, remove: m.dropPod, trim: trimPod,
		drop: func(p *v1.Pod) { m.dropPod(p.UID) },
	})
}

// putNode stores a node unless it is older than the stored one: the response to a write may be
// newer than a watch event. The lock must be held.
func (m *Mirror) putNode(n *v1.Node) {
	n = m.trimmer.node(n)
	if stored := m.nodes[n.Name]; stored == nil || stored.UID != n.UID ||
		!older(n.ResourceVersion, stored.ResourceVersion) {
		m.setNode(n)
	}
}

// setNode stores a node of any version. After a restore of etcd from a backup, all versions
// in a list are older than the stored ones. The lock must be held.
func (m *Mirror) setNode(n *v1.Node) {
	previous := m.nodes[n.Name]
	m.nodes[n.Name] = n
	m.updateRival(previous, n)
	if previous == nil || previous.UID != n.UID || !sameHeartbeats(previous, n) {
		m.beatAt[n.Name] = time.Now()
	}
	if previous == nil || previous.UID != n.UID || !sameNode(previous, n) {
		m.notify()
	}
}

// putLease stores a Lease as putNode stores a node. The lock must be held.
func (m *Mirror) putLease(l *coordination.Lease) {
	l = m.trimmer.lease(l)
	if stored := m.leases[l.Name]; stored == nil || stored.UID != l.UID ||
		!older(l.ResourceVersion, stored.ResourceVersion) {
		m.setLease(l)
	}
}

// setLease stores a Lease as setNode stores a node.
func (m *Mirror) setLease(l *coordination.Lease) {
	if previous := m.leases[l.Name]; previous == nil || !previous.Spec.RenewTime.Equal(l.Spec.RenewTime) {
		m.renewedAt[l.Name] = time.Now()
	}
	m.leases[l.Name] = l
}

// putPod stores a pod as putNode stores a node, if it is bound and has not finished. The lock must
// be held.
func (m *Mirror) putPod(p *v1.Pod) {
	p = m.trimmer.pod(p)
	if stored := m.pods[p.UID]; stored == nil || !older(p.ResourceVersion, stored.ResourceVersion) {
		m.setPod(p)
	}
}

// setPod stores a pod as setNode stores a node.
func (m *Mirror) setPod(p *v1.Pod) {
	previous := m.pods[p.UID]
	if previous != nil && previous.Spec.NodeName != p.Spec.NodeName {
		m.dropPod(p.UID)
		previous = nil
	}
	if p.Spec.NodeName == "" || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		m.dropPod(p.UID)
		return
	}
	m.pods[p.UID] = p
	onNode := m.podsByNode[p.Spec.NodeName]
	if i := slices.Index(onNode, previous); previous != nil && i >= 0 {
		onNode[i] = p
	} else {
		m.podsByNode[p.Spec.NodeName] = append(onNode, p)
	}
	if m.affectsDecisions(p) {
		m.notify()
	}
}

// dropPod removes a pod. The lock must be held.
func (m *Mirror) dropPod(uid types.UID) {
	stored := m.pods[uid]
	if stored == nil {
		return
	}
	delete(m.pods, uid)
	onNode := slices.DeleteFunc(m.podsByNode[stored.Spec.NodeName], func(p *v1.Pod) bool { return p.UID == uid })
	if m.podsByNode[stored.Spec.NodeName] = onNode; len(onNode) == 0 {
		delete(m.podsByNode, stored.Spec.NodeName)
	}
	if m.affectsDecisions(stored) {
		m.notify()
	}
}

// affectsDecisions reports whether decisions may depend on a pod: its node has a NoExecute taint or
// is not ready.
func (m *Mirror) affectsDecisions(p *v1.Pod) bool {
	n := m.nodes[p.Spec.NodeName]
	if n == nil {
		return false
	}
	for i := range n.Spec.Taints {
		if n.Spec.Taints[i].Effect == v1.TaintEffectNoExecute {
			return true
		}
	}
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c.Status != v1.ConditionTrue
		}
	}
	return true
}
