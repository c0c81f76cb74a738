package model

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scoreNode returns a node with labels, taints in a YAML list, and allocatable cpu and memory.
func scoreNode(t *testing.T, name, cpu, memory, labels, taints string) *v1.Node {
	n := read[v1.Node](t, fmt.Sprintf("metadata: {name: %s, labels: {%s}}\nspec: {taints: [%s]}", name, labels, taints))
	n.Status.Allocatable = v1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory), "pods": resource.MustParse("100")}
	return n
}

// Cases from the tests of kube-scheduler's plugins (pkg/scheduler/framework/plugins, v1.37.2) with
// their names and scores. e2e/oracle compares random clusters.
func TestScoreCases(t *testing.T) {
	const (
		request   = "{resources: {requests: {cpu: %s, memory: %s}}}"
		foo       = "{maxSkew: %d, topologyKey: %s, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchExpressions: [{key: %s, operator: Exists}]}}"
		awayFrom  = "affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 5, podAffinityTerm: {topologyKey: az, labelSelector: {matchLabels: {security: %s}}}}]}}"
		hard      = "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: region, labelSelector: {matchExpressions: [{key: security, operator: In, values: [S1, value2]}]}}, {topologyKey: region, labelSelector: {matchExpressions: [{key: security, operator: Exists}, {key: wrongkey, operator: DoesNotExist}]}}]}}"
		softTaint = "{key: %s, value: %s, effect: PreferNoSchedule}"
		preferred = "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 2, preference: {matchExpressions: [{key: foo, operator: In, values: [bar]}]}}, {weight: 4, preference: {matchExpressions: [{key: key, operator: In, values: [value]}]}}, {weight: 5, preference: {matchExpressions: [{key: foo, operator: In, values: [bar]}, {key: key, operator: In, values: [value]}, {key: az, operator: In, values: [az1]}]}}]}}"
		three     = "containers: [" + request + ", " + request + "]"
	)
	large := fmt.Sprintf(three, "1", "2000", "2", "3000")
	hosts := func(name string) *v1.Node {
		return scoreNode(t, name, "4", "10Gi", "kubernetes.io/hostname: "+name, "")
	}
	four := []*v1.Node{hosts("node-a"), hosts("node-b"), hosts("node-c"), hosts("node-d")}
	// pods returns count pods on each node.
	pods := func(labels, spec string, counts map[string]int) (out []*v1.Pod) {
		for _, n := range slices.Sorted(maps.Keys(counts)) {
			for i := range counts[n] {
				p := read[v1.Pod](t, fmt.Sprintf("metadata: {name: %s-%d, namespace: x, labels: {%s}}\nspec: {nodeName: %s, %s}", n, i, labels, n, spec))
				p.Name = fmt.Sprintf("%s-%d-%d", n, i, len(labels)+len(spec))
				out = append(out, p)
			}
		}
		return out
	}
	size := func(name, cpu, memory string) *v1.Node { return scoreNode(t, name, cpu, memory, "", "") }
	owned := func(in []*v1.Pod) []*v1.Pod {
		for _, p := range in {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true)}}
		}
		return in
	}
	for _, c := range []struct {
		file, name  string
		profile     SchedulerProfile
		pod, labels string
		owned       bool
		nodes       []*v1.Node
		pods        []*v1.Pod
		want        map[string]int64
	}{
		{"noderesources/least_allocated_test.go", "nothing scheduled, resources requested, differently sized nodes", SchedulerProfile{NodeResourcesFit: 1},
			large, "", false, []*v1.Node{size("node1", "4", "10000"), size("node2", "6", "10000")}, nil, map[string]int64{"node1": 37, "node2": 50}},
		{"noderesources/least_allocated_test.go", "resources requested, pods scheduled with resources", SchedulerProfile{NodeResourcesFit: 1},
			large, "", false, []*v1.Node{size("node1", "10", "20000"), size("node2", "10", "20000")},
			append(pods("a: a", "containers: ["+fmt.Sprintf(request, "3", "0")+"]", map[string]int{"node1": 1}),
				pods("b: bb", "containers: ["+fmt.Sprintf(request, "3", "5000")+"]", map[string]int{"node2": 1})...), map[string]int64{"node1": 57, "node2": 45}},
		{"noderesources/most_allocated_test.go", "nothing scheduled, resources requested, differently sized nodes",
			SchedulerProfile{NodeResourcesFit: 1, Packing: MostAllocated},
			large, "", false, []*v1.Node{size("node1", "4", "10000"), size("node2", "6", "10000")}, nil, map[string]int64{"node1": 62, "node2": 50}},
		{"noderesources/balanced_allocation_test.go", "nothing scheduled, resources requested, differently sized nodes",
			SchedulerProfile{NodeResourcesBalancedAllocation: 1},
			large, "", false, []*v1.Node{size("node1", "4", "10000"), size("node2", "6", "10000")}, nil, map[string]int64{"node1": 68, "node2": 75}},
		{"noderesources/balanced_allocation_test.go", "resources requested, pods scheduled with resources, nodes to reach min/max score",
			SchedulerProfile{NodeResourcesBalancedAllocation: 1},
			"containers: [{resources: {requests: {memory: 2000}}}, {resources: {requests: {memory: 3000}}}]", "", false,
			[]*v1.Node{size("node1", "3", "5000"), size("node2", "3", "5000")},
			pods("a: a", "containers: [{resources: {requests: {cpu: 1}}}, {resources: {requests: {cpu: 2}}}]", map[string]int{"node1": 1}),
			map[string]int64{"node1": 100, "node2": 50}},
		{"podtopologyspread/scoring_test.go", "one constraint on node, all 4 nodes are candidates, maxSkew=3", SchedulerProfile{PodTopologySpread: 1},
			"topologySpreadConstraints: [" + fmt.Sprintf(foo, 3, v1.LabelHostname, "foo") + "]", "foo: \"\"", false, four,
			pods("foo: \"\"", "", map[string]int{"node-a": 4, "node-b": 3, "node-c": 2, "node-d": 1}),
			map[string]int64{"node-a": 44, "node-b": 66, "node-c": 77, "node-d": 100}},
		{"podtopologyspread/scoring_test.go", "system defaulting, nodes don't have zone, pods match service", SchedulerProfile{PodTopologySpread: 1},
			"", "foo: \"\"", true, four, owned(pods("foo: \"\"", "", map[string]int{"node-a": 4, "node-b": 3, "node-c": 2, "node-d": 1})),
			map[string]int64{"node-a": 44, "node-b": 66, "node-c": 77, "node-d": 100}},
		{"podtopologyspread/scoring_test.go", "two Constraints on zone, 2 out of 4 nodes are candidates", SchedulerProfile{PodTopologySpread: 1},
			"topologySpreadConstraints: [" + fmt.Sprintf(foo, 1, "zone", "foo") + ", " + fmt.Sprintf(foo, 1, "zone", "bar") + "]",
			"foo: \"\", bar: \"\"", false, []*v1.Node{scoreNode(t, "node-a", "4", "10Gi", "zone: zone1", ""), scoreNode(t, "node-x", "4", "10Gi", "zone: zone2", ""),
				scoreNode(t, "node-b", "4", "10Gi", "zone: zone1", "{key: t, effect: NoSchedule}"), scoreNode(t, "node-y", "4", "10Gi", "zone: zone2", "{key: t, effect: NoSchedule}")},
			append(pods("foo: \"\", bar: \"\"", "", map[string]int{"node-a": 1, "node-b": 1, "node-y": 1}), pods("foo: \"\"", "", map[string]int{"node-a": 1, "node-y": 2})...),
			map[string]int64{"node-a": 85, "node-x": 100}},
		{"interpodaffinity/scoring_test.go", "Anti Affinity: pod that does not match topology key & match the pods in nodes will get higher score comparing to others ",
			SchedulerProfile{InterPodAffinity: 1}, fmt.Sprintf(awayFrom, "S1"), "security: S1", false,
			[]*v1.Node{scoreNode(t, "node1", "4", "10Gi", "az: az1", ""), scoreNode(t, "node2", "4", "10Gi", "region: China", "")},
			pods("security: S1", "", map[string]int{"node1": 1, "node2": 1}), map[string]int64{"node1": 0, "node2": 100}},
		{"interpodaffinity/scoring_test.go", "Anti Affinity symmetry: the existing pods in node which has anti affinity match will get high score",
			SchedulerProfile{InterPodAffinity: 1}, "", "security: S2", false,
			[]*v1.Node{scoreNode(t, "node1", "4", "10Gi", "az: az1", ""), scoreNode(t, "node2", "4", "10Gi", "az: az2", "")},
			append(pods("security: S1", fmt.Sprintf(awayFrom, "S2"), map[string]int{"node1": 1}),
				pods("security: S2", fmt.Sprintf(awayFrom, "S1"), map[string]int{"node2": 1})...), map[string]int64{"node1": 0, "node2": 100}},
		{"interpodaffinity/scoring_test.go", "Affinity symmetry: considered RequiredDuringSchedulingIgnoredDuringExecution in pod affinity symmetry",
			SchedulerProfile{InterPodAffinity: 1}, "", "security: S1", false,
			[]*v1.Node{scoreNode(t, "node1", "4", "10Gi", "region: China", ""), scoreNode(t, "node2", "4", "10Gi", "region: India", ""),
				scoreNode(t, "node3", "4", "10Gi", "az: az1", "")},
			append(pods("security: S1", hard, map[string]int{"node1": 1}), pods("security: S2", hard, map[string]int{"node2": 1})...),
			map[string]int64{"node1": 100, "node2": 100, "node3": 0}},
		{"tainttoleration/taint_toleration_test.go", "the more intolerable taints a node has, the lower score it gets.", SchedulerProfile{TaintToleration: 1},
			"tolerations: [{key: foo, operator: Equal, value: bar, effect: PreferNoSchedule}]", "", false,
			[]*v1.Node{scoreNode(t, "nodeA", "4", "10Gi", "", ""), scoreNode(t, "nodeB", "4", "10Gi", "", fmt.Sprintf(softTaint, "cpu-type", "arm64")),
				scoreNode(t, "nodeC", "4", "10Gi", "", fmt.Sprintf(softTaint, "cpu-type", "arm64")+", "+fmt.Sprintf(softTaint, "disk-type", "ssd"))},
			nil, map[string]int64{"nodeA": 100, "nodeB": 50, "nodeC": 0}},
		{"nodeaffinity/node_affinity_test.go", "all nodes matches the preferred scheduling requirements of pod but with different priorities ",
			SchedulerProfile{NodeAffinity: 1}, preferred, "", false,
			[]*v1.Node{scoreNode(t, "node1", "4", "10Gi", "foo: bar", ""), scoreNode(t, "node5", "4", "10Gi", "foo: bar, key: value, az: az1", ""),
				scoreNode(t, "node2", "4", "10Gi", "key: value", "")}, nil, map[string]int64{"node1": 18, "node5": 100, "node2": 36}},
	} {
		cl := New(&Objects{Nodes: c.nodes, Pods: c.pods}, nil)
		p := read[v1.Pod](t, fmt.Sprintf("metadata: {name: new, namespace: x, labels: {%s}}\nspec: {%s}", c.labels, c.pod))
		if c.owned {
			owned([]*v1.Pod{p})
		}
		if got := cl.FitCheck(cl.NewPod(p)).Scores(&c.profile); !maps.Equal(got, c.want) {
			t.Errorf("%s, %s: scores = %v, want %v", c.file, c.name, got, c.want)
		}
	}
}

// The replacement of a pod is scored while the pod is still being deleted: its requests and its
// affinity count, but spread constraints ignore it.
func TestSuccessor(t *testing.T) {
	const spec = "affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 5, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: a}}}}]}}"
	n1, n2 := scoreNode(t, "n1", "4", "8Gi", "kubernetes.io/hostname: n1", ""), scoreNode(t, "n2", "4", "8Gi", "kubernetes.io/hostname: n2", "")
	p := read[v1.Pod](t, "metadata: {name: p, namespace: x, labels: {app: a}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: r, controller: true}]}\n"+
		"spec: {nodeName: n1, containers: [{resources: {requests: {cpu: 2, memory: 4Gi}}}], "+spec+"}")
	c := New(&Objects{Nodes: []*v1.Node{n1, n2}, Pods: []*v1.Pod{p}}, nil)
	pod := c.Pods()[0]
	for name, one := range map[string]struct {
		profile           SchedulerProfile
		terminating, gone map[string]int64
	}{
		"resources": {SchedulerProfile{NodeResourcesFit: 1}, map[string]int64{"n1": 0, "n2": 50}, map[string]int64{"n1": 50, "n2": 50}},
		"affinity":  {SchedulerProfile{InterPodAffinity: 1}, map[string]int64{"n1": 0, "n2": 100}, map[string]int64{"n1": 0, "n2": 0}},
		"spread":    {SchedulerProfile{PodTopologySpread: 1}, map[string]int64{"n1": 100, "n2": 100}, map[string]int64{"n1": 100, "n2": 100}},
	} {
		if got := c.FitCheck(pod).Successor().Scores(&one.profile); !maps.Equal(got, one.terminating) {
			t.Errorf("%s, while the pod is being deleted: scores = %v, want %v", name, got, one.terminating)
		}
		if got := c.FitCheck(pod).Scores(&one.profile); !maps.Equal(got, one.gone) {
			t.Errorf("%s, once the pod is gone: scores = %v, want %v", name, got, one.gone)
		}
	}
	n1.Status.Allocatable["cpu"] = resource.MustParse("3")
	c = New(&Objects{Nodes: []*v1.Node{n1}, Pods: []*v1.Pod{p}}, nil)
	if got := c.FitCheck(c.Pods()[0]).Successor().FailureReason(c.Nodes[0]); got != "insufficient cpu" {
		t.Errorf("while the pod is being deleted: failure reason = %q, want insufficient cpu", got)
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
