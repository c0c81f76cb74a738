package mirror

import (
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// View is what a look sees. It, and what it holds, is not to be kept or changed.
type View struct {
	Nodes   map[string]*v1.Node
	Leases  map[string]*coordination.Lease
	Changed bool // something has changed since the last look that decisions depend on
	m       *Mirror
}

// Look has a function look at everything. Nothing changes meanwhile, so it should be quick.
func (m *Mirror) View(f func(*View)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := View{Nodes: m.nodes, Leases: m.leases, Changed: m.changed, m: m}
	m.changed = false
	f(&v)
}

// PodsOf are the pods that are bound to a node and not over.
func (v *View) PodsOf(node string) []*v1.Pod { return v.m.podsByNode[node] }

// Came is when a node's heartbeats, and its Lease, came to be as they are.
func (v *View) Arrivals(node string) (beat, lease time.Time) {
	return v.m.beatAt[node], v.m.renewedAt[node]
}

// Pods are how many pods there are.
func (v *View) PodCount() int { return len(v.m.pods) }

// PodByName finds a pod; nil: there is none that is bound and not over.
func (v *View) PodByName(namespace, name string) *v1.Pod {
	for _, p := range v.m.pods {
		if p.Name == name && p.Namespace == namespace {
			return p
		}
	}
	return nil
}

// Node is a node; nil: there is none. It must not be changed.
func (m *Mirror) Node(name string) *v1.Node {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes[name]
}

// Pod is a pod that is bound and not over; nil: there is none. It must not be changed.
func (m *Mirror) Pod(uid types.UID) *v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[uid]
}

// TookNode takes a node as the API answered to a write, so that nothing is decided on what was
// before it.
func (m *Mirror) UpdateNode(n *v1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.putNode(n)
}

// TookLease takes a Lease likewise.
func (m *Mirror) UpdateLease(l *coordination.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.putLease(l)
}

// TookPod takes a pod likewise.
func (m *Mirror) UpdatePod(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.putPod(p)
}
