package model

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Amounts of the resource pods, and of resources that a node lacks.
func TestAmountsOfNodes(t *testing.T) {
	p := podOn(t, "p", "n1", "", "containers: [{resources: {requests: {cpu: 500m, memory: 0}}}]")
	c := New(&Objects{Nodes: []*v1.Node{node("n1", "a")}, Pods: []*v1.Pod{p}}, nil)
	pod, n := c.Pods()[0], c.Nodes[0]
	for name, want := range map[v1.ResourceName]int64{v1.ResourcePods: 1, v1.ResourceCPU: 500, v1.ResourceMemory: 0, "x/y": 0} {
		if got, on := pod.Request(name), n.Requested(name); got != want || on != want {
			t.Errorf("%s: pod requests %d, pods of the node %d, want %d", name, got, on, want)
		}
	}
	if got := n.Resources(); len(got) != 1 || got[0] != v1.ResourceCPU {
		t.Errorf("requested resources = %v, want cpu", got)
	}
	if c.Remove(pod); len(n.Resources()) != 0 {
		t.Errorf("requested resources without a pod = %v, want none", n.Resources())
	}
	for _, one := range []struct {
		part, whole int64
		want        float64
	}{{1, 2, 50}, {1, 0, 0}, {0, 0, 0}, {0, 1, 0}} {
		if got := Percent(one.part, one.whole); got != one.want {
			t.Errorf("Percent(%d, %d) = %v, want %v", one.part, one.whole, got, one.want)
		}
	}
}

// Lists without duplicates are short ones, or have an index. A pod is found by each of its owners.
func TestDistinctValues(t *testing.T) {
	for _, count := range []int{1, smallCount, smallCount + 1, 3 * smallCount} {
		var d distinct[int]
		p := podOn(t, "p", "", "", "")
		for range 2 {
			for i := range count {
				d.add(i)
				p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: "R", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i))})
			}
		}
		if len(d.list) != count {
			t.Errorf("%d values added twice: %d in the list, want each once", count, len(d.list))
		}
		c := New(&Objects{Pods: []*v1.Pod{p}}, nil)
		for i := range p.OwnerReferences {
			if got := c.OwnedPods(c.Pods()[0], i); len(got) != 1 {
				t.Errorf("%d owners: %d pods of owner %d, want one", count, len(got), i)
			}
		}
	}
}

// Undo restores pods on nodes and in namespaces, in their order.
func TestUndoRestoresOrder(t *testing.T) {
	o := &Objects{Nodes: []*v1.Node{node("n1", "a")}}
	for _, name := range []string{"a", "b", "c"} {
		o.Pods = append(o.Pods, podOn(t, name, "n1", "", "containers: [{resources: {requests: {cpu: 100m}}}]"))
	}
	o.Pods = append(o.Pods, podOn(t, "lost", "", "", ""))
	c := New(o, nil)
	state := func() (out string) {
		for _, p := range append(slices.Clone(c.Nodes[0].Pods), c.pods["x"]...) {
			out += p.Name + " "
		}
		return out + fmt.Sprint(c.Nodes[0].Requested(v1.ResourceCPU), c.Moves())
	}
	before, pods := state(), c.Pods()
	c.Remove(pods[0])
	between := state()
	c.Put(c.NewPod(podOn(t, "d", "", "", "")), c.Nodes[0])
	c.Put(c.NewPod(podOn(t, "e", "", "", "")), nil)
	c.Remove(pods[1])
	c.Remove(pods[3])
	if c.Undo(1); state() != between {
		t.Errorf("after undo of all but one move: %s, want %s", state(), between)
	}
	if c.Undo(0); state() != before || pods[0].Node != c.Nodes[0] || pods[3].Node != nil {
		t.Errorf("after undo: %s, want %s", state(), before)
	}
}
