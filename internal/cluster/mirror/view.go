package mirror

import (
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// View is the content of a Mirror. It is valid only during the call that provides it. It and its
// objects must not be modified.
type View struct {
	Nodes   map[string]*v1.Node
	Leases  map[string]*coordination.Lease
	Changed bool // a change since the last View that decisions depend on
	m       *Mirror
}

// View calls f with the content. It holds the lock, so f must be quick.
func (m *Mirror) View(f func(*View)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := View{Nodes: m.nodes, Leases: m.leases, Changed: m.changed, m: m}
	m.changed = false
	f(&v)
}

// PodsOf returns the pods that are bound to a node and have not finished.
func (v *View) PodsOf(node string) []*v1.Pod { return v.m.podsByNode[node] }

// Arrivals returns when the node's current heartbeat and Lease arrived.
func (v *View) Arrivals(node string) (beat, lease time.Time) {
	return v.m.beatAt[node], v.m.renewedAt[node]
}

// PodCount returns the number of pods.
func (v *View) PodCount() int { return len(v.m.pods) }

// PodByName returns a pod, or nil if no such pod is bound and unfinished.
func (v *View) PodByName(namespace, name string) *v1.Pod {
	for _, p := range v.m.pods {
		if p.Name == name && p.Namespace == namespace {
			return p
		}
	}
	return nil
}

// Node returns a node, or nil. It must not be modified.
func (m *Mirror) Node(name string) *v1.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes[name]
}

// Pod returns a pod, or nil if it is not bound or has finished. It must not be modified.
func (m *Mirror) Pod(uid types.UID) *v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[uid]
}

// UpdateNode stores the node of a response, so that the next decision uses it, if the copy still
// has the node of the decision. Otherwise the watch has reported its deletion, and no later event
// would remove the node again.
func (m *Mirror) UpdateNode(decided, n *v1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if stored := m.nodes[decided.Name]; stored != nil && stored.UID == decided.UID {
		m.putNode(n)
	}
}

// RemoveNode removes a node that does not exist according to a response: the watch lags.
func (m *Mirror) RemoveNode(decided *v1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropNode(decided)
}

// UpdateLease stores the Lease of a response if the copy still has the node and the Lease of the
// decision. known is that Lease; nil: none.
func (m *Mirror) UpdateLease(decided *v1.Node, known, l *coordination.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, stored := m.nodes[decided.Name], m.leases[l.Name]
	if n == nil || n.UID != decided.UID || (stored == nil) != (known == nil) ||
		stored != nil && stored.UID != known.UID {
		return
	}
	m.putLease(l)
}

// UpdatePod stores the pod of a response to a write if the copy still has the pod.
func (m *Mirror) UpdatePod(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pods[p.UID] != nil {
		m.putPod(p)
	}
}

// RemovePod removes a pod that does not exist according to a response.
func (m *Mirror) RemovePod(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropPod(uid)
}
