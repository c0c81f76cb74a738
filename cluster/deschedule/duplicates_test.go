package deschedule

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// All groups of duplicates and all namespaces are balanced.
func TestAllGroupsAreBalanced(t *testing.T) {
	apart := spreads(v1.LabelHostname, 1, v1.DoNotSchedule)
	for name, p := range map[string]plan{
		RemoveDuplicates: {args: &RemoveDuplicatesArgs{}, pods: all(podsNamed(2, "a", "n1", owned("ReplicaSet", "a")),
			podsNamed(2, "b", "n1", owned("ReplicaSet", "b")))},
		TopologySpreadConstraint: {args: &SpreadArgs{}, pods: all(podsNamed(2, "a", "n1", apart), podsNamed(2, "b", "n1", apart, inSpace("other")))},
	} {
		p.strategy, p.nodes = name, cluster(machine("n1", 8000), machine("n2", 8000))
		if r := p.run(t); len(r.Evictions) != 2 || r.Evictions[0].Name[0] == r.Evictions[1].Name[0] {
			t.Errorf("%s: evictions = %v, want one of each group; skipped %v", name, names(r), r.Skipped)
		}
	}
}

// Duplicates are moved to nodes with less than their share: pods that nodeFit keeps there count, and
// those that the plan has moved there. Nodes count for the share only if they take duplicates that
// could also be elsewhere.
func TestShareOfDuplicates(t *testing.T) {
	zones := func() []*v1.Node {
		return cluster(machine("n1", 8000, nodeLabel("a", "x")), machine("n2", 64000, nodeLabel("a", "x"), nodeLabel("b", "x")), machine("n3", 8000, nodeLabel("b", "x"), nodeLabel("c", "x")),
			machine("n4", 8000, nodeLabel("c", "x"), nodeLabel("d", "x")))
	}
	in := func(key string) edit { return selects(key, "x") }
	pinned := selects(v1.LabelHostname, "n2")
	owners := func(second string) edit {
		return func(p *v1.Pod) {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: "X", Name: second, UID: types.UID(second)})
		}
	}
	for name, c := range map[string]struct {
		pods []*v1.Pod
		want string
	}{
		"one is pinned to the other node":  {all(podsNamed(4, "p", "n1", in("a")), podsNamed(1, "q", "n2", pinned)), "p1"},
		"two are pinned to the other node": {all(podsNamed(4, "p", "n1", in("a")), podsNamed(2, "q", "n2", pinned)), ""},
		"a single pod adds no nodes":       {all(podsNamed(2, "p", "n1", in("a")), podsNamed(1, "q", "n3", in("c"))), ""},
		"pods of one node add no node":     {all(podsNamed(3, "p", "n1", in("b")), podsNamed(2, "q", "n1", selects(v1.LabelHostname, "n1"))), "p1 p0"},
		"the same owners":                  {podsNamed(2, "p", "n1", in("a"), owners("x")), "p0"},
		"different second owners":          {podList(pod("p", "n1", in("a"), owners("x")), pod("q", "n1", in("a"), owners("y"))), ""},
		"different images":                 {podList(pod("p", "n1", in("a"), images("x")), pod("q", "n1", in("a"), images("y"))), ""},
	} {
		p := plan{strategy: RemoveDuplicates, args: &RemoveDuplicatesArgs{}, evictor: &DefaultEvictorArgs{NodeFit: name != "pods of one node add no node"},
			nodes: zones(), pods: c.pods}
		if r := p.run(t); strings.Join(names(r), " ") != c.want {
			t.Errorf("%s: evictions = %v, want %q; skipped %v", name, names(r), c.want, r.Skipped)
		}
	}
}
