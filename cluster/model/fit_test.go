package model

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod fits on its own node when it is gone, even if it fills the node. A node without the topology
// key of a hard constraint takes no pod.
func TestFitsOnOwnNode(t *testing.T) {
	full := podOn(t, "full", "n1", "", "containers: [{resources: {requests: {cpu: 2}}}]")
	spread := podOn(t, "spread", "", "app: a", "topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: a}}}]")
	c := New(&Objects{Nodes: []*v1.Node{node("n1", "a")}, Pods: []*v1.Pod{full}}, nil)
	if got := c.FitCheck(c.Pods()[0]).FailureReason(c.Nodes[0]); got != "" {
		t.Errorf("pod that is gone: failure reason = %q, want none", got)
	}
	if got := c.FitCheck(c.Pods()[0]).Successor().FailureReason(c.Nodes[0]); got != "insufficient cpu" {
		t.Errorf("pod that is being deleted: failure reason = %q, want insufficient cpu", got)
	}
	apart := podOn(t, "apart", "", "", "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [x]}]}]}}}")
	if got := c.FitCheck(c.NewPod(apart)).FailureReason(c.Nodes[0]); got != reasonNodeAffinity {
		t.Errorf("other node affinity: failure reason = %q, want %q", got, reasonNodeAffinity)
	}
	const ports = "containers: [{ports: [{containerPort: 80}]}]"
	shared := New(&Objects{Nodes: []*v1.Node{node("n1", "a")}, Pods: []*v1.Pod{podOn(t, "there", "n1", "", ports)}}, nil)
	if got := shared.FitCheck(shared.NewPod(podOn(t, "new", "", "", ports))).FailureReason(shared.Nodes[0]); got != "" {
		t.Errorf("the same container port: failure reason = %q, want none", got)
	}
	if got := c.FitCheck(c.NewPod(spread)).FailureReason(c.Nodes[0]); got != "node has no topology label rack" {
		t.Errorf("node without topology key: failure reason = %q, want the label", got)
	}
}

// Anti-affinity of a pod to its own label keeps the replacement out of the topology until the pod is
// gone.
func TestReplacementConflictsWithItsPod(t *testing.T) {
	const anti = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: a}}}]}}"
	c := New(&Objects{Nodes: []*v1.Node{node("n1", "a"), node("n2", "a")}, Pods: []*v1.Pod{podOn(t, "p", "n1", "app: a", anti)}}, nil)
	gone := c.FitCheck(c.Pods()[0])
	if now, later := gone.Successor().FailureReason(c.Nodes[1]), gone.FailureReason(c.Nodes[1]); now != "anti-affinity conflicts with x/p" || later != "" {
		t.Errorf("failure reason = %q, and %q when the pod is gone, want a conflict, and none", now, later)
	}
}

// Each feasible node is found once, also in clusters in which the scheduler scores only some of them.
func TestFeasibleNodesAreDistinct(t *testing.T) {
	for _, one := range []struct{ nodes, cordoned, want int }{{3, 1, 2}, {100, 1, 99}, {101, 2, 99}, {300, 0, 144}, {300, 200, 100}, {100, 0, 100}} {
		o := &Objects{}
		for i := range one.nodes {
			n := node(fmt.Sprintf("n%03d", i), "a")
			n.Spec.Unschedulable = i < one.cordoned
			o.Nodes = append(o.Nodes, n)
		}
		for _, on := range []string{"", fmt.Sprintf("n%03d", one.nodes-1), "n000"} {
			p := podOn(t, "p", on, "", "")
			o.Pods = []*v1.Pod{p}
			c, found := New(o, nil), map[*Node]bool{}
			all := c.FitCheck(c.Pods()[0]).feasible()
			for _, n := range all {
				found[n] = true
			}
			if len(all) != one.want || len(found) != one.want {
				t.Errorf("%d nodes, %d cordoned, pod on %q: %d feasible nodes, %d distinct, want %d", one.nodes, one.cordoned, on, len(all), len(found), one.want)
			}
		}
	}
}

// Anti-affinity conflicts with the first pod by name in the same topology, and with no pod of nodes
// that lack the key.
func TestAntiAffinityConflicts(t *testing.T) {
	const anti = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: rack, labelSelector: {matchLabels: {app: a}}}]}}"
	n1, n2, n3 := node("n1", "a"), node("n2", "a"), node("n3", "a")
	n1.Labels["rack"], n2.Labels["rack"] = "r", "s"
	for name, c := range map[string]struct {
		pods string // name and node of the pods with the label; p is the first
		want string
	}{
		"itself": {"p n1", ""}, "same rack": {"p n1 c n1 b n1 d n1", "x/b"}, "another rack": {"p n1 b n2", ""},
		"no rack": {"p n3 b n3", ""}, "does not count": {"p n1 ignored n1 z n1", "x/z"},
	} {
		o, list := &Objects{Nodes: []*v1.Node{n1, n2, n3}}, strings.Fields(c.pods)
		for i := 0; i < len(list); i += 2 {
			spec := ""
			if i == 0 {
				spec = anti
			}
			o.Pods = append(o.Pods, podOn(t, list[i], list[i+1], "app: a", spec))
		}
		cl, got := New(o, nil), ""
		for _, p := range cl.Pods() {
			if p.Name != "p" {
				if p.HasAntiAffinity() {
					t.Errorf("%s: pod %s has anti-affinity, want none", name, p.Name)
				}
			} else if other := cl.AntiAffinityConflict(p, func(p *Pod) bool { return p.Name != "ignored" }); other != nil {
				got = other.Key()
			}
		}
		if got != c.want {
			t.Errorf("%s: conflict with %q, want %q", name, got, c.want)
		}
	}
}

// Anti-affinity with a namespace selector conflicts with pods of the namespaces that it selects.
func TestConflictsInOtherNamespaces(t *testing.T) {
	const anti = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: a}}, namespaceSelector: {matchLabels: {team: t}}}]}}"
	for team, want := range map[string]string{"t": "y/there", "u": ""} {
		there := podOn(t, "there", "n1", "app: a", "")
		there.Namespace = "y"
		c := New(&Objects{Nodes: []*v1.Node{node("n1", "a")}, Pods: []*v1.Pod{there, podOn(t, "p", "n1", "", anti)},
			Namespaces: []*v1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "y", Labels: map[string]string{"team": team}}}}}, nil)
		got := ""
		if other := c.AntiAffinityConflict(c.Pods()[0], func(*Pod) bool { return true }); other != nil {
			got = other.Key()
		}
		if got != want {
			t.Errorf("namespace of team %s: conflict with %q, want %q", team, got, want)
		}
	}
}
