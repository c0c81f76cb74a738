package model

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	v := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), v); err != nil {
		t.Fatal(err)
	}
	return v
}

func node(name, zone string) *v1.Node {
	list := v1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi"), "pods": resource.MustParse("5")}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelTopologyZone: zone, v1.LabelHostname: name}},
		Status:     v1.NodeStatus{Allocatable: list},
	}
}

// The pod is checked on n1, which is in zone a. Node n2 is in zone b and runs the pod "there",
// unless the case sets n1.
func TestFailureReason(t *testing.T) {
	there := "metadata: {name: there, namespace: x, labels: {app: there}}\nspec: {nodeName: n2, containers: [{ports: [{hostPort: 80}]}]}"
	for _, c := range []struct {
		name, there, pod, want string
		edit                   func(*v1.Node)
	}{
		{name: "empty", pod: "{}"},
		{name: "cordoned", pod: "{}", edit: func(n *v1.Node) { n.Spec.Unschedulable = true }, want: "is cordoned"},
		{name: "not ready", pod: "{}", want: "not ready", edit: func(n *v1.Node) {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}
		}},
		{name: "selector", pod: "nodeSelector: {a: b}", want: "node selector"},
		{name: "taint", pod: "{}", want: "taint a=b:NoSchedule is not tolerated", edit: func(n *v1.Node) {
			n.Spec.Taints = []v1.Taint{{Key: "a", Value: "b", Effect: v1.TaintEffectNoSchedule}}
		}},
		{name: "soft taint", pod: "{}", edit: func(n *v1.Node) {
			n.Spec.Taints = []v1.Taint{{Key: "a", Value: "b", Effect: v1.TaintEffectPreferNoSchedule}}
		}},
		{name: "cpu", pod: "containers: [{resources: {requests: {cpu: 3}}}]", want: "insufficient cpu"},
		{name: "overhead", pod: "{containers: [{resources: {requests: {cpu: 2}}}], overhead: {cpu: 1m}}", want: "insufficient cpu"},
		{name: "unknown resource", pod: "containers: [{resources: {requests: {x/y: 1}}}]", want: "insufficient x/y"},
		{name: "pods", pod: "{}", want: "insufficient pods", edit: func(n *v1.Node) { n.Status.Allocatable["pods"] = resource.MustParse("0") }},
		{name: "port", pod: "containers: [{ports: [{hostPort: 80}]}]", there: "n1", want: "in use by x/there"},
		{name: "other address", pod: "containers: [{ports: [{hostPort: 80, hostIP: 10.0.0.1, protocol: UDP}]}]", there: "n1"},
		{name: "anti-affinity", there: "n1", pod: `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
  {labelSelector: {matchLabels: {app: there}}, topologyKey: topology.kubernetes.io/zone}]}}`, want: "anti-affinity conflicts with x/there"},
		{name: "anti-affinity elsewhere", pod: `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
  {labelSelector: {matchLabels: {app: there}}, topologyKey: topology.kubernetes.io/zone}]}}`},
		{name: "affinity", pod: `affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
  {labelSelector: {matchLabels: {app: there}}, topologyKey: topology.kubernetes.io/zone}]}}`, want: "no pod matches its pod affinity"},
		{name: "affinity to itself", pod: `affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
  {labelSelector: {matchLabels: {app: new}}, topologyKey: topology.kubernetes.io/zone}]}}`},
		{name: "spread", there: "n1", pod: `topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone,
  whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: app, operator: Exists}]}}]`, want: "maxSkew"},
		{name: "spread elsewhere", pod: `topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone,
  whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: app, operator: Exists}]}}]`},
		{name: "minDomains", pod: `topologySpreadConstraints: [{maxSkew: 1, minDomains: 3, topologyKey: topology.kubernetes.io/zone,
  whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: app, operator: Exists}]}}]`, there: "n1", want: "maxSkew"},
		{name: "volume in zone b", pod: "volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]", want: "volume of claim c"},
		{name: "volume made for n2", pod: "volumes: [{name: v, persistentVolumeClaim: {claimName: d}}]", want: "volume of claim d"},
		{name: "unknown volume", pod: "volumes: [{name: v, persistentVolumeClaim: {claimName: e}}]"},
	} {
		n1 := node("n1", "a")
		if c.edit != nil {
			c.edit(n1)
		}
		other := read[v1.Pod](t, there)
		if c.there != "" {
			other.Spec.NodeName = c.there
		}
		cl := New(&Objects{
			Nodes: []*v1.Node{node("n2", "b"), n1}, Pods: []*v1.Pod{other},
			Claims: []*v1.PersistentVolumeClaim{
				read[v1.PersistentVolumeClaim](t, "metadata: {name: c, namespace: x}\nspec: {volumeName: v}"),
				read[v1.PersistentVolumeClaim](t, "metadata: {name: d, namespace: x, annotations: {volume.kubernetes.io/selected-node: n2}}\nspec: {volumeName: w}"),
			},
			Volumes: []*v1.PersistentVolume{read[v1.PersistentVolume](t, "metadata: {name: v, labels: {topology.kubernetes.io/zone: b}}")},
		}, nil)
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "x", Labels: map[string]string{"app": "new"}}, Spec: *read[v1.PodSpec](t, c.pod)}
		got := cl.FitCheck(cl.NewPod(p)).FailureReason(cl.Find("n1"))
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: failure reason = %q, want %q", c.name, got, c.want)
		}
	}
}

// The anti-affinity of a running pod keeps a new pod off its node.
func TestAntiAffinityOfRunningPods(t *testing.T) {
	shy := read[v1.Pod](t, `metadata: {name: shy, namespace: x}
spec: {nodeName: n1, affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
  {labelSelector: {}, namespaceSelector: {matchLabels: {loud: "yes"}}, topologyKey: kubernetes.io/hostname}]}}}`)
	c := New(&Objects{
		Nodes: []*v1.Node{node("n1", "a"), node("n2", "a")}, Pods: []*v1.Pod{shy},
		Namespaces: []*v1.Namespace{read[v1.Namespace](t, "metadata: {name: loud, labels: {loud: \"yes\"}}")},
	}, nil)
	for namespace, want := range map[string]string{"loud": "n2", "quiet": "n1"} {
		p := c.NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: namespace}})
		if got, _ := c.FindOther(p, c.Nodes); got.Name != want {
			t.Errorf("namespace %s: FindOther() = %s, want %s", namespace, got.Name, want)
		}
	}
}

// A pod with several terms needs a pod that matches all of them, as in kube-scheduler
// (interpodaffinity/filtering.go, updateWithAffinityTerms, satisfyPodAffinity). It is the first
// of its group only if no pod matches all terms.
func TestAffinityNeedsPodsMatchingAllTerms(t *testing.T) {
	const zone, host = v1.LabelTopologyZone, v1.LabelHostname
	for _, c := range []struct{ name, pod, there, keys, want string }{
		{"a pod has both labels", "a: y, b: y", "a: y, b: y", zone + " " + zone, ""},
		{"two pods have one label each", "", "a: y", zone + " " + zone, "no pod matches its pod affinity"},
		{"the first of its kind", "a: y, b: y", "c: y", zone + " " + zone, ""},
		{"matches one of its own terms", "a: y", "c: y", zone + " " + zone, "no pod matches its pod affinity"},
		{"node without the second topology key", "a: y, b: y", "a: y, b: y", zone + " rack", "no pod matches its pod affinity"},
		{"pod in another topology of the second key", "a: y, b: y", "a: y, b: y", zone + " " + host, "no pod matches its pod affinity"},
	} {
		zoneKey, otherKey, _ := strings.Cut(c.keys, " ")
		there := read[v1.Pod](t, fmt.Sprintf("metadata: {name: there, namespace: x, labels: {%s}}\nspec: {nodeName: n2}", strings.ReplaceAll(c.there, "y", `"y"`)))
		also := read[v1.Pod](t, "metadata: {name: also, namespace: x, labels: {b: \"y\"}}\nspec: {nodeName: n2}")
		if c.name != "two pods have one label each" {
			also.Labels = nil
		}
		p := read[v1.Pod](t, fmt.Sprintf(`metadata: {name: new, namespace: x, labels: {%s}}
spec: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
  {labelSelector: {matchLabels: {a: "y"}}, topologyKey: %s}, {labelSelector: {matchLabels: {b: "y"}}, topologyKey: %s}]}}}`, strings.ReplaceAll(c.pod, "y", `"y"`), zoneKey, otherKey))
		n1, n2 := node("n1", "a"), node("n2", "a")
		if otherKey == "rack" {
			n1.Labels["rack"] = "r"
		}
		cl := New(&Objects{Nodes: []*v1.Node{n1, n2}, Pods: []*v1.Pod{there, also}}, nil)
		if got := cl.FitCheck(cl.NewPod(p)).FailureReason(cl.Find("n1")); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: failure reason = %q, want %q", c.name, got, c.want)
		}
	}
}

// A node without a topology key of a hard constraint counts for none of the pod's hard
// constraints, as in kube-scheduler (podtopologyspread/filtering.go, calPreFilterState): its zone
// is no empty domain, and its pods do not count.
func TestNodeMissingTopologyKeyIsIgnored(t *testing.T) {
	const spread = `{topologySpreadConstraints: [
  {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: new}}},
  {maxSkew: 9, topologyKey: rack, whenUnsatisfiable: %s, labelSelector: {matchLabels: {app: new}}}]}`
	for _, c := range []struct{ name, second, want string }{
		{"both are hard", "DoNotSchedule", ""},
		{"the second is soft", "ScheduleAnyway", "maxSkew"},
	} {
		n1, n2 := node("n1", "a"), node("n2", "b")
		n1.Labels["rack"] = "r"
		there := read[v1.Pod](t, "metadata: {name: there, namespace: x, labels: {app: new}}\nspec: {nodeName: n1}")
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "x", Labels: there.Labels},
			Spec:       *read[v1.PodSpec](t, fmt.Sprintf(spread, c.second)),
		}
		cl := New(&Objects{Nodes: []*v1.Node{n1, n2}, Pods: []*v1.Pod{there}}, nil)
		if got := cl.FitCheck(cl.NewPod(p)).FailureReason(cl.Find("n1")); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: failure reason = %q, want %q", c.name, got, c.want)
		}
	}
}

func TestPlace(t *testing.T) {
	busy := read[v1.Pod](t, "metadata: {name: busy, namespace: x}\nspec: {nodeName: n1, containers: [{resources: {requests: {cpu: 1}}}]}")
	c := New(&Objects{Nodes: []*v1.Node{node("n1", "a"), node("n2", "a")}, Pods: []*v1.Pod{busy}}, nil)
	p := c.NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "x"}})
	packing := DefaultProfile()
	packing.Packing = MostAllocated
	if got := c.Place(p, DefaultProfile()); got.Name != "n2" {
		t.Errorf("Place(LeastAllocated) = %s, want n2", got.Name)
	}
	if got := c.Place(p, packing); got.Name != "n1" {
		t.Errorf("Place(MostAllocated) = %s, want n1", got.Name)
	}
	if c.FitCheck(p).FitsAny(func(*Node) bool { return false }) {
		t.Error("FitsAny() with no wanted node = true, want false")
	}
	many := &Objects{}
	for i := range 300 {
		many.Nodes = append(many.Nodes, node(fmt.Sprintf("n%03d", i), "a"))
	}
	c = New(many, nil)
	if one, two := c.Place(c.NewPod(p.Pod), packing), c.Place(c.NewPod(p.Pod), packing); one != two {
		t.Errorf("Place() of the same pod = %s, then %s, want the same node", one.Name, two.Name)
	}
}

func TestBudgets(t *testing.T) {
	pod := func(name string, phase v1.PodPhase, ready v1.ConditionStatus) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "x", Labels: map[string]string{"app": "a"}}, Spec: v1.PodSpec{NodeName: "n1"},
			Status: v1.PodStatus{Phase: phase}}
		if ready != "" {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: ready}}
		}
		return p
	}
	pods := []*v1.Pod{pod("a", v1.PodRunning, v1.ConditionTrue), pod("b", v1.PodRunning, ""), pod("c", v1.PodRunning, v1.ConditionFalse),
		pod("d", v1.PodPending, ""), pod("e", v1.PodFailed, "")}
	c := New(&Objects{Nodes: []*v1.Node{node("n1", "a")}, Pods: pods}, nil)
	spec := policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}
	for _, one := range []struct {
		name  string
		edit  func(*policyv1.PodDisruptionBudget)
		which []int
		want  string // for each pod: + allowed, - blocked
	}{
		{"by spec, two of four pods are healthy", func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = new(intstr.FromInt32(1)) }, []int{0, 1}, "+-"},
		{"unhealthy pods while enough are healthy", func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = new(intstr.FromInt32(2)) },
			[]int{0, 2}, "-+"},
		{"unhealthy pod while too few are healthy", func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = new(intstr.FromString("75%")) }, []int{2}, "-"},
		{"too few are healthy, with AlwaysAllow", func(b *policyv1.PodDisruptionBudget) {
			b.Spec.MinAvailable, b.Spec.UnhealthyPodEvictionPolicy = new(intstr.FromString("75%")), new(policyv1.AlwaysAllow)
		}, []int{2, 0}, "+-"},
		{"pending and failed pods", func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = new(intstr.FromInt32(0)) }, []int{3, 4, 0}, "++-"},
		{"by status", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 1 }, []int{0, 1}, "+-"},
		{"stale status", func(b *policyv1.PodDisruptionBudget) {
			b.Generation, b.Status.ObservedGeneration, b.Status.DisruptionsAllowed = 2, 1, 1
		},
			[]int{0}, "-"},
	} {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "x"}, Spec: spec}
		one.edit(b)
		budgets, got := NewBudgets(c, []*policyv1.PodDisruptionBudget{b}), ""
		for _, i := range one.which {
			if budgets.Spend(pods[i]) == "" {
				got += "+"
			} else {
				got += "-"
			}
		}
		if got != one.want {
			t.Errorf("%s: Spend() = %s, want %s", one.name, got, one.want)
		}
		if again := NewBudgets(c, budgets.Remaining()); again.Spend(pods[0]) == "" && strings.HasSuffix(one.want, "-") {
			t.Errorf("%s: remaining budget allows another eviction, want none", one.name)
		}
	}
}

// If several pods conflict, the reason names the first by name.
func TestFailureReasonNamesFirstPod(t *testing.T) {
	const anti = `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
  {labelSelector: {matchLabels: {app: there}}, topologyKey: topology.kubernetes.io/zone},
  {labelSelector: {matchLabels: {app: there}}, topologyKey: kubernetes.io/hostname}]}}`
	o := &Objects{Nodes: []*v1.Node{node("n1", "a")}}
	for _, name := range []string{"a", "b", "c"} {
		o.Pods = append(o.Pods, read[v1.Pod](t, "metadata: {name: "+name+", namespace: x, labels: {app: there}}\nspec: {nodeName: n1}"))
	}
	c := New(o, nil)
	p := read[v1.Pod](t, "metadata: {name: new, namespace: x, labels: {app: new}}\nspec: {"+anti+"}")
	for range 20 {
		if got := c.FitCheck(c.NewPod(p)).FailureReason(c.Find("n1")); got != "anti-affinity conflicts with x/a" {
			t.Fatalf("failure reason = %q, want a conflict with x/a", got)
		}
	}
}

// Index entries remain correct after pods were added and removed.
func TestIndexIsUpdated(t *testing.T) {
	made := func(name, app string) *v1.Pod {
		return read[v1.Pod](t, fmt.Sprintf("metadata: {name: %s, namespace: x, labels: {app: %s}, ownerReferences: [{kind: R, name: o, uid: u}]}",
			name, app))
	}
	c := New(&Objects{Nodes: []*v1.Node{node("n1", "a")}, Pods: []*v1.Pod{made("a", "web"), made("b", "db")}}, nil)
	found := func() (out string) {
		s, err := metav1.ParseToLabelSelector("app=web")
		if err != nil {
			t.Fatal(err)
		}
		by := newIndexedSelector(selectorOf(s))
		for _, p := range c.selected("x", &by) {
			out += p.Name
		}
		out += " "
		for _, p := range c.ownedBy("x", &metav1.OwnerReference{Kind: "R", Name: "o", UID: "u"}) {
			out += p.Name
		}
		return out
	}
	if got := found(); got != "a ab" {
		t.Errorf("index finds %q, want \"a ab\"", got)
	}
	added := c.NewPod(made("c", "web"))
	c.Put(added, c.Find("n1"))
	if got := found(); got != "ac abc" {
		t.Errorf("after Put: index finds %q, want \"ac abc\"", got)
	}
	c.Remove(added)
	if got := found(); got != "a ab" {
		t.Errorf("after Remove: index finds %q, want \"a ab\"", got)
	}
}

// podOn returns a pod of namespace x on a node, with labels and a spec in YAML.
func podOn(t *testing.T, name, on, labels, spec string) *v1.Pod {
	t.Helper()
	p := read[v1.Pod](t, fmt.Sprintf("metadata: {name: %s, namespace: x, labels: {%s}}\nspec: {%s}", name, labels, spec))
	p.Spec.NodeName = on
	return p
}
