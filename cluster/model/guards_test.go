package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// podOn returns a pod of namespace x on a node, with labels and a spec in YAML.
func podOn(t *testing.T, name, on, labels, spec string) *v1.Pod {
	t.Helper()
	p := read[v1.Pod](t, fmt.Sprintf("metadata: {name: %s, namespace: x, labels: {%s}}\nspec: {%s}", name, labels, spec))
	p.Spec.NodeName = on
	return p
}

// A budget with an invalid share, or with the wrong health of its pods, allows no eviction.
func TestBudgetsThatAllowNothing(t *testing.T) {
	ready := func(status v1.ConditionStatus) *v1.Pod {
		p := podOn(t, "p", "n1", "app: a", "")
		p.Status.Phase, p.Status.Conditions = v1.PodRunning, []v1.PodCondition{{Type: v1.PodReady, Status: status}}
		return p
	}
	for name, c := range map[string]struct {
		edit    func(*policyv1.PodDisruptionBudget)
		ready   v1.ConditionStatus
		allowed bool
	}{
		"invalid minAvailable":                              {func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = new(intstr.FromString("most")) }, v1.ConditionTrue, false},
		"invalid maxUnavailable":                            {func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = new(intstr.FromString("few")) }, v1.ConditionTrue, false},
		"no healthy pod is desired, the pod is not healthy": {func(b *policyv1.PodDisruptionBudget) { b.Status.ExpectedPods = 1 }, v1.ConditionFalse, false},
		"one healthy pod is desired, another is": {func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy, b.Status.DesiredHealthy = 1, 1 },
			v1.ConditionFalse, true},
	} {
		p := ready(c.ready)
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "x"},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}}
		c.edit(b)
		cl := New(&Objects{Nodes: []*v1.Node{node("n1", "a")}, Pods: []*v1.Pod{p}}, nil)
		if why := NewBudgets(cl, []*policyv1.PodDisruptionBudget{b}).Spend(p); (why == "") != c.allowed {
			t.Errorf("%s: Spend() = %q, want allowed: %t", name, why, c.allowed)
		}
	}
	for count, want := range map[int]string{2: "b0, b1", maxNames: "b9", maxNames + 1: "b9 and 1 more"} {
		var all []*budget
		for i := range count {
			all = append(all, &budget{PodDisruptionBudget: &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("b", i)}}})
		}
		if got := namesOf(all); !strings.HasSuffix(got, want) {
			t.Errorf("names of %d budgets = %q, want %q at the end", count, got, want)
		}
	}
}

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

// Scores of single plugins where a resource, a constraint or a term does not count.
func TestScoresOfWhatDoesNotCount(t *testing.T) {
	const (
		hostKey = "kubernetes.io/hostname: %s, topology.kubernetes.io/zone: %s"
		spread  = "topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: %s, labelSelector: %s}]"
		near    = "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: a}}}]}}"
		asks    = "containers: [{resources: {requests: {cpu: 1, memory: 1Gi}}}]"
		app     = "{matchLabels: {app: a}}"
	)
	in := func(name, zone string) *v1.Node {
		return scoreNode(t, name, "4", "4Gi", fmt.Sprintf(hostKey, name, zone), "")
	}
	lacks := func(name string, keys ...v1.ResourceName) *v1.Node {
		n := in(name, "a")
		for _, key := range keys {
			delete(n.Status.Allocatable, key)
		}
		return n
	}
	zero := func(name string) *v1.Node {
		n := in(name, "a")
		n.Status.Allocatable["memory"] = resource.MustParse("0")
		return n
	}
	on := func(spec string, nodes ...string) (out []*v1.Pod) {
		for i, n := range nodes {
			p := podOn(t, fmt.Sprint("p", i), n, "app: a", spec)
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", UID: "r"}}
			out = append(out, p)
		}
		return out
	}
	fit, balanced := SchedulerProfile{NodeResourcesFit: 1}, SchedulerProfile{NodeResourcesBalancedAllocation: 1}
	topology, inter := SchedulerProfile{PodTopologySpread: 1}, SchedulerProfile{InterPodAffinity: 1}
	zones := []*v1.Node{in("n1", "a"), in("n2", "a"), in("n3", "b"), in("n4", "b")}
	for name, c := range map[string]struct {
		profile SchedulerProfile
		spec    string
		nodes   []*v1.Node
		pods    []*v1.Pod
		want    map[string]int64
	}{
		"node without memory":                {fit, "containers: [{}]", []*v1.Node{in("n1", "a"), lacks("n2", "memory")}, nil, map[string]int64{"n1": 96, "n2": 97}},
		"no memory on the node":              {fit, "containers: [{}]", []*v1.Node{in("n1", "a"), zero("n2")}, nil, map[string]int64{"n1": 96, "n2": 97}},
		"node without both":                  {fit, "containers: [{}]", []*v1.Node{in("n1", "a"), lacks("n2", "cpu", "memory")}, nil, map[string]int64{"n1": 96, "n2": 0}},
		"balance without memory":             {balanced, "containers: [{resources: {requests: {cpu: 1}}}]", []*v1.Node{in("n1", "a"), lacks("n2", "memory"), zero("n3")}, nil, map[string]int64{"n1": 68, "n2": 75, "n3": 75}},
		"balance without cpu":                {balanced, "containers: [{resources: {requests: {memory: 1Gi}}}]", []*v1.Node{in("n1", "a"), lacks("n2", "cpu")}, nil, map[string]int64{"n1": 68, "n2": 75}},
		"balance without requests":           {balanced, "", []*v1.Node{in("n1", "a"), in("n2", "a")}, nil, map[string]int64{"n1": 0, "n2": 0}},
		"no feasible node":                   {*DefaultProfile(), "nodeSelector: {no: node}", zones, nil, map[string]int64{}},
		"hard constraint":                    {topology, fmt.Sprintf(spread, "DoNotSchedule", app), zones, nil, map[string]int64{"n1": 0, "n2": 0, "n3": 0, "n4": 0}},
		"soft constraint on two zones":       {topology, fmt.Sprintf(spread, "ScheduleAnyway", app), zones, on("", "n1", "n1", "n2", "n3", "n4"), map[string]int64{"n1": 75, "n2": 75, "n3": 100, "n4": 100}},
		"soft constraint without selector":   {topology, fmt.Sprintf(spread, "ScheduleAnyway", "{}"), zones, on("", "n1"), map[string]int64{"n1": 100, "n2": 100, "n3": 100, "n4": 100}},
		"required affinity of the pod":       {inter, near, zones, on("", "n1", "n1", "n3"), map[string]int64{"n1": 0, "n2": 0, "n3": 0, "n4": 0}},
		"terms that attract to all equally":  {inter, "", zones, on(near, "n1", "n3"), map[string]int64{"n1": 0, "n2": 0, "n3": 0, "n4": 0}},
		"default constraints, no controller": {topology, "", []*v1.Node{in("n1", "a"), in("n2", "a")}, on("", "n1", "n1"), map[string]int64{"n1": 72, "n2": 100}},
	} {
		cl := New(&Objects{Nodes: c.nodes, Pods: c.pods}, nil)
		p := podOn(t, "new", "", "app: a", c.spec)
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", UID: "r"}}
		check := cl.FitCheck(cl.NewPod(p))
		for range 2 { // the first scores leave nothing behind
			if got := check.Scores(&c.profile); !maps.Equal(got, c.want) {
				t.Errorf("%s: scores = %v, want %v", name, got, c.want)
			}
		}
	}
}

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

// Pods of one owner have their own terms if these differ, or depend on their labels.
func TestPodsHaveOwnTerms(t *testing.T) {
	const (
		anti   = "affinity: {podAntiAffinity: {%sDuringSchedulingIgnoredDuringExecution: [%s]}}"
		near   = "affinity: {podAffinity: {%sDuringSchedulingIgnoredDuringExecution: [%s]}}"
		term   = "{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: a}}, %s: [version]}"
		spread = "topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: a}}, matchLabelKeys: [version]}]"
	)
	weighted := func(form, key string) string {
		return fmt.Sprintf(form, "preferred", "{weight: 1, podAffinityTerm: "+fmt.Sprintf(term, key)+"}")
	}
	required := func(form, key string) string { return fmt.Sprintf(form, "required", fmt.Sprintf(term, key)) }
	for name, c := range map[string]struct {
		first, second string
		same          bool
	}{
		"anti-affinity, match":      {required(anti, "matchLabelKeys"), "", false},
		"anti-affinity, mismatch":   {required(anti, "mismatchLabelKeys"), "", false},
		"preferred anti-affinity":   {weighted(anti, "matchLabelKeys"), "", false},
		"affinity":                  {required(near, "matchLabelKeys"), "", false},
		"preferred affinity":        {weighted(near, "mismatchLabelKeys"), "", false},
		"spread":                    {spread, "", false},
		"selector":                  {"nodeSelector: {a: b}", "", true},
		"another selector":          {"nodeSelector: {a: b}", "nodeSelector: {a: c}", false},
		"other tolerations":         {"nodeSelector: {a: b}", "nodeSelector: {a: b}, tolerations: [{operator: Exists}]", false},
		"affinity without the keys": {fmt.Sprintf(near, "required", "{topologyKey: rack, labelSelector: {}}"), "", true},
	} {
		if c.second == "" {
			c.second = c.first
		}
		one, two := podOn(t, "one", "", "app: a, version: v1", c.first), podOn(t, "two", "", "app: a, version: v2", c.second)
		for _, p := range []*v1.Pod{one, two} {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", UID: "r"}}
		}
		cl := New(&Objects{}, nil)
		if got := cl.NewPod(one).template == cl.NewPod(two).template; got != c.same {
			t.Errorf("%s: pods share terms: %t, want %t", name, got, c.same)
		}
		if two.Namespace = "y"; cl.NewPod(one).template == cl.NewPod(two).template {
			t.Errorf("%s: pods of two namespaces share terms", name)
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

// The owner with the first kind and name gives a pod its number, in its namespace.
func TestOwnerNumbers(t *testing.T) {
	c := New(&Objects{}, nil)
	number := func(namespace string, owners ...string) int32 {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace}}
		for _, o := range owners {
			p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: o[:1], Name: o[1:]})
		}
		return c.NewPod(p).OwnerNumber
	}
	a := number("x", "Aa")
	if number("x") != 0 || a == 0 || number("x", "Bb", "Aa") != a || number("x", "Ab", "Aa") != a || number("y", "Aa") == a || number("x", "Bb") == a {
		t.Error("owner numbers differ for the same first owner, or are the same for different ones")
	}
	if c.Owners() != 3 {
		t.Errorf("%d owners, want 3", c.Owners())
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

// Resources that a node lacks have no balance.
func TestBalanceOfOneResource(t *testing.T) {
	for _, c := range []struct {
		used, whole pair
		want        int64
	}{{pair{1, 0}, pair{2, 0}, 100}, {pair{0, 1}, pair{0, 2}, 100}, {pair{1, 1}, pair{2, 2}, 100}, {pair{2, 0}, pair{2, 2}, 50}} {
		if got := balance(c.used, c.whole); got != c.want {
			t.Errorf("balance of %v in %v = %d, want %d", c.used, c.whole, got, c.want)
		}
	}
}

// A selector with keys requires the values that the pod has, or others. Keys that the pod lacks have
// no effect. An absent or invalid selector matches nothing.
func TestSelectorsWithKeys(t *testing.T) {
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	own := map[string]string{"app": "a", "version": "1"}
	for name, c := range map[string]struct {
		selector *metav1.LabelSelector
		keys     []string
		same     bool
		match    string // which of the versions 1, 2 and none match
	}{
		"no keys": {app, nil, true, "1 2 none"}, "same": {app, []string{"version"}, true, "1"}, "different": {app, []string{"version"}, false, "2 none"},
		"pod lacks the key": {app, []string{"other"}, true, "1 2 none"}, "matches nothing": {nil, []string{"version"}, true, ""},
		"invalid": {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}, nil, true, ""},
	} {
		s, match := withKeys(selectorOf(c.selector), own, c.keys, c.same), []string{}
		for _, version := range []string{"1", "2", "none"} {
			set := labels.Set{"app": "a"}
			if version != "none" {
				set["version"] = version
			}
			if s.Matches(set) {
				match = append(match, version)
			}
		}
		if got := strings.Join(match, " "); got != c.match {
			t.Errorf("%s: versions that match = %q, want %q", name, got, c.match)
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
