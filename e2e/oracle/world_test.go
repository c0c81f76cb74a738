// Package oracle runs kube-controller-manager's node-lifecycle-controller and
// taint-eviction-controller 1.37.2 and this project's two cores on the same timelines, in virtual
// time, and attributes every difference to a documented improvement. It is a separate module that no
// program links.
//
// A timeline is played twice. The first half compares the
// states of nodes and pods over time, with the lifecycle controller and its core. The second half
// compares the deletion times of pods, with both taint evictions on the NoExecute taints that the
// core set in the first. So differences of the first do not affect the second.
//
//	world_test.go    the objects, and their writers
//	film_test.go     the objects' properties over time
//	timeline_test.go random timelines
//	trouble_test.go  their events of nodes and pods
//	upstream_test.go the unmodified controllers on a fake API server
//	ours_test.go     the cores
//	health_test.go   the first half: why a node's conditions differ
//	queue_test.go    the first half: why its NoExecute taint differs; zones, rates and tokens
//	invariants_test.go rules that the core obeys, whatever upstream does
//	deadline_test.go the second half: when pods are deleted, and why that differs
//	oracle_test.go   the comparison
//	score_test.go    scores of nodes, compared with the scheduler's plugins
//	kubelet_test.go  admission and QoS classes, compared with the kubelet's code
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
