// Package oracle drives kube-controller-manager's node-lifecycle-controller and taint-eviction-controller 1.36.3 and this project's two
// cores over the same timelines, in virtual time, and says of every difference which of the documented improvements it belongs to. It is a
// module of its own: nothing of it is linked into anything.
//
// A timeline is played twice. In the first half the lifecycle controller and its core have the nodes: what differs is for how long a node
// or pod is something with one and not with the other. In the second both taint evictions have the pods, with the NoExecute taints that
// the core has set in the first: what differs is when a pod goes. So a difference of the first is none of the second.
//
//	world_test.go    what there is, and who writes into it
//	film_test.go     what objects were, from when to when
//	timeline_test.go random timelines
//	trouble_test.go  what happens to nodes and pods in them
//	upstream_test.go the controllers, as they are, on a fake API server
//	ours_test.go     the cores
//	health_test.go   the first half: why a node's conditions differ
//	queue_test.go    the first half: why its NoExecute taint differs; zones, rates and tokens
//	deadline_test.go the second half: when pods go, and by which improvement that differs
//	oracle_test.go   the comparison
package oracle

import (
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// start is the start of timelines: that of the clock in a bubble of testing/synctest. It is local
// time like all times decoded from the wire: upstream compares heartbeats as structs, including the
// time zone.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Local()

// stamp returns a time as decoded from the wire: in whole seconds.
func stamp(at time.Duration) metav1.Time { return metav1.NewTime(start.Add(at).Truncate(time.Second)) }

// store keeps objects. Callers may modify the returned objects and put them back.
type store interface {
	node(name string) *v1.Node // nil: not found
	putNode(*v1.Node)
	dropNode(name string)
	putLease(*coordination.Lease)
	pod(key string) *v1.Pod
	podsOf(node string) []*v1.Pod
	putPod(*v1.Pod)
	dropPod(key string)
}

func keyOf(p *v1.Pod) string { return p.Namespace + "/" + p.Name }

// world is a store of plain maps that records a film.
type world struct {
	now    time.Duration
	nodes  map[string]*v1.Node
	leases map[string]*coordination.Lease
	pods   map[string]*v1.Pod
	film
}

func newWorld() *world {
	return &world{nodes: map[string]*v1.Node{}, leases: map[string]*coordination.Lease{}, pods: map[string]*v1.Pod{}, film: film{}}
}

func (w *world) node(name string) *v1.Node { return w.nodes[name].DeepCopy() }

func (w *world) putNode(n *v1.Node) {
	w.nodes[n.Name] = n
	w.seeNode(w.now, n.Name, n)
}

func (w *world) dropNode(name string) {
	delete(w.nodes, name)
	w.seeNode(w.now, name, nil)
}

func (w *world) putLease(l *coordination.Lease) { w.leases[l.Name] = l }
func (w *world) pod(key string) *v1.Pod         { return w.pods[key].DeepCopy() }

func (w *world) putPod(p *v1.Pod) {
	w.pods[keyOf(p)] = p
	w.seePod(w.now, keyOf(p), p)
}

func (w *world) dropPod(key string) {
	delete(w.pods, key)
	w.seePod(w.now, key, nil)
}

func (w *world) podsOf(node string) (out []*v1.Pod) {
	for _, p := range w.pods {
		if p.Spec.NodeName == node {
			out = append(out, p.DeepCopy())
		}
	}
	return out
}

func condition(n *v1.Node, t v1.NodeConditionType) *v1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}
