package model

import (
	"fmt"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A constraint counts the nodes and the pods that its policies and the topology key include. Pods with
// other node affinity or tolerations have other domains.
func TestDomainsOfConstraints(t *testing.T) {
	const form = "nodeSelector: {%s}, tolerations: [%s], topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: a}}, nodeAffinityPolicy: %s, nodeTaintsPolicy: %s}]"
	n1, n2, n3, n4 := node("n1", "a"), node("n2", "b"), node("n3", "c"), node("n4", "d")
	n1.Labels["pool"], n2.Labels["pool"], n4.Labels["pool"] = "x", "x", "x"
	n2.Spec.Taints = []v1.Taint{{Key: "t", Effect: v1.TaintEffectNoSchedule}}
	delete(n4.Labels, v1.LabelTopologyZone)
	tolerates := "{key: t, operator: Exists}"
	for name, c := range map[string]struct {
		selector, tolerations, affinity, taints string
		want                                    map[string]int
	}{
		"no restriction":             {"", "", "Ignore", "Ignore", map[string]int{"a": 2, "b": 1, "c": 1}},
		"affinity counts":            {"pool: x", "", "Honor", "Ignore", map[string]int{"a": 2, "b": 1}},
		"affinity is ignored":        {"pool: x", "", "Ignore", "Ignore", map[string]int{"a": 2, "b": 1, "c": 1}},
		"taints count":               {"", "", "Ignore", "Honor", map[string]int{"a": 2, "c": 1}},
		"taints count, is tolerated": {"", tolerates, "Ignore", "Honor", map[string]int{"a": 2, "b": 1, "c": 1}},
		"taints are ignored":         {"", tolerates, "Ignore", "Ignore", map[string]int{"a": 2, "b": 1, "c": 1}},
	} {
		pods := []*v1.Pod{podOn(t, "lost", "", "app: a", ""), podOn(t, "other", "n1", "app: b", "")}
		for i, on := range []string{"n1", "n1", "n2", "n3", "n4"} {
			pods = append(pods, podOn(t, fmt.Sprint("p", i), on, "app: a", ""))
		}
		cl := New(&Objects{Nodes: []*v1.Node{n1, n2, n3, n4}, Pods: pods}, nil)
		k := cl.NewPod(podOn(t, "new", "", "app: a", fmt.Sprintf(form, c.selector, c.tolerations, c.affinity, c.taints))).Constraints()[0]
		for range 2 { // the second answer comes from memory
			if got := k.CountByDomain(cl, "x", cl.Nodes); !maps.Equal(got, c.want) {
				t.Errorf("%s: pods by domain = %v, want %v", name, got, c.want)
			}
		}
		if got := k.CountByDomain(cl, "x", cl.Nodes[1:2]); len(got) > 1 || got["a"] != 0 {
			t.Errorf("%s: pods by domain of n2 = %v, want those of zone b only", name, got)
		}
	}
	empty := New(&Objects{Nodes: []*v1.Node{n1, n2}}, nil)
	k := empty.NewPod(podOn(t, "new", "", "app: a", fmt.Sprintf(form, "", "", "Ignore", "Ignore"))).Constraints()[0]
	if got, want := k.CountByDomain(empty, "x", empty.Nodes), map[string]int{"a": 0, "b": 0}; !maps.Equal(got, want) {
		t.Errorf("domains without pods = %v, want %v", got, want)
	}
	if got := (&Constraint{MinDomains: 2}).MinCount(map[string]int{"a": 3, "b": 2}); got != 2 {
		t.Errorf("MinCount with as many domains as minDomains = %d, want 2", got)
	}
	if got := (&Constraint{MinDomains: 3}).MinCount(map[string]int{"a": 3, "b": 2}); got != 0 {
		t.Errorf("MinCount with fewer domains = %d, want 0", got)
	}
	if got := (&Constraint{}).MinCount(nil); got != 0 {
		t.Errorf("MinCount without domains = %d, want 0", got)
	}
}

// Constraints of pods with other node affinity, tolerations or selectors are not the same.
func TestIdentityOfConstraints(t *testing.T) {
	const rest = "topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: a}}, nodeTaintsPolicy: Honor}]"
	required := "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [%s]}]}]}}}, "
	c, seen := New(&Objects{}, nil), map[string]string{}
	for name, spec := range map[string]string{
		"plain": "", "selector x": "nodeSelector: {pool: x}, ", "selector y": "nodeSelector: {pool: y}, ",
		"affinity x": fmt.Sprintf(required, "x"), "affinity y": fmt.Sprintf(required, "y"),
		"tolerates t": "tolerations: [{key: t, operator: Exists}], ", "tolerates u": "tolerations: [{key: u, operator: Exists}], ",
	} {
		id := c.NewPod(podOn(t, "p", "", "app: a", spec+rest)).Constraints()[0].Identity
		if other, known := seen[id]; known {
			t.Errorf("%s and %s have the same identity, want different ones", name, other)
		}
		seen[id] = name
	}
	preferred := "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: pool, operator: In, values: [x]}]}}]}}, "
	if id := c.NewPod(podOn(t, "p", "", "app: a", preferred+rest)).Constraints()[0].Identity; seen[id] != "plain" {
		t.Errorf("a preference changes the identity to that of %q, want none", seen[id])
	}
}
