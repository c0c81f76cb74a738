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

// Why a node does not take a pod. The pod is wanted on n1, which is in zone a; n2 is in zone b, where the pod "there" is.
func TestRefuses(t *testing.T) {
	there := "metadata: {name: there, namespace: x, labels: {app: there}}\nspec: {nodeName: n2, containers: [{ports: [{hostPort: 80}]}]}"
	for _, c := range []struct {
		name, there, pod, want string
		edit                   func(*v1.Node)
	}{
		{name: "empty", pod: "{}"},
		{name: "cordoned", pod: "{}", edit: func(n *v1.Node) { n.Spec.Unschedulable = true }, want: "cordoned"},
		{name: "not ready", pod: "{}", want: "not ready", edit: func(n *v1.Node) {
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}
		}},
		{name: "selector", pod: "nodeSelector: {a: b}", want: "node selector"},
		{name: "taint", pod: "{}", want: "taint a=b:NoSchedule", edit: func(n *v1.Node) {
			n.Spec.Taints = []v1.Taint{{Key: "a", Value: "b", Effect: v1.TaintEffectNoSchedule}}
		}},
		{name: "soft taint", pod: "{}", edit: func(n *v1.Node) {
			n.Spec.Taints = []v1.Taint{{Key: "a", Value: "b", Effect: v1.TaintEffectPreferNoSchedule}}
		}},
		{name: "cpu", pod: "containers: [{resources: {requests: {cpu: 3}}}]", want: "not enough cpu"},
		{name: "overhead", pod: "{containers: [{resources: {requests: {cpu: 2}}}], overhead: {cpu: 1m}}", want: "not enough cpu"},
		{name: "unknown resource", pod: "containers: [{resources: {requests: {x/y: 1}}}]", want: "not enough x/y"},
		{name: "pods", pod: "{}", want: "not enough pods", edit: func(n *v1.Node) { n.Status.Allocatable["pods"] = resource.MustParse("0") }},
		{name: "port", pod: "containers: [{ports: [{hostPort: 80}]}]", there: "n1", want: "taken by x/there"},
		{name: "other address", pod: "containers: [{ports: [{hostPort: 80, hostIP: 10.0.0.1, protocol: UDP}]}]", there: "n1"},
		{name: "anti-affinity", there: "n1", pod: `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
  {labelSelector: {matchLabels: {app: there}}, topologyKey: topology.kubernetes.io/zone}]}}`, want: "anti-affinity keeps it from where x/there is"},
		{name: "anti-affinity elsewhere", pod: `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
  {labelSelector: {matchLabels: {app: there}}, topologyKey: topology.kubernetes.io/zone}]}}`},
		{name: "affinity", pod: `affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
  {labelSelector: {matchLabels: {app: there}}, topologyKey: topology.kubernetes.io/zone}]}}`, want: "nobody is there"},
		{name: "affinity to itself", pod: `affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
  {labelSelector: {matchLabels: {app: new}}, topologyKey: topology.kubernetes.io/zone}]}}`},
		{name: "spread", there: "n1", pod: `topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone,
  whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: app, operator: Exists}]}}]`, want: "maxSkew"},
		{name: "spread elsewhere", pod: `topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone,
  whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: app, operator: Exists}]}}]`},
		{name: "minDomains", pod: `topologySpreadConstraints: [{maxSkew: 1, minDomains: 3, topologyKey: topology.kubernetes.io/zone,
  whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: app, operator: Exists}]}}]`, there: "n1", want: "maxSkew"},
		{name: "volume in zone b", pod: "volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]", want: "volume of its claim c"},
		{name: "volume made for n2", pod: "volumes: [{name: v, persistentVolumeClaim: {claimName: d}}]", want: "volume of its claim d"},
		{name: "volume that is not known", pod: "volumes: [{name: v, persistentVolumeClaim: {claimName: e}}]"},
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
		got := cl.Ask(cl.Pod(p)).Refuses(cl.Find("n1"))
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A pod that is already there keeps one away that it does not want near it.
func TestOthersAntiAffinityCounts(t *testing.T) {
	shy := read[v1.Pod](t, `metadata: {name: shy, namespace: x}
spec: {nodeName: n1, affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
  {labelSelector: {}, namespaceSelector: {matchLabels: {loud: "yes"}}, topologyKey: kubernetes.io/hostname}]}}}`)
	c := New(&Objects{
		Nodes: []*v1.Node{node("n1", "a"), node("n2", "a")}, Pods: []*v1.Pod{shy},
		Namespaces: []*v1.Namespace{read[v1.Namespace](t, "metadata: {name: loud, labels: {loud: \"yes\"}}")},
	}, nil)
	for namespace, want := range map[string]string{"loud": "n2", "quiet": "n1"} {
		p := c.Pod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: namespace}})
		if got, _ := c.Fits(p, c.Nodes); got.Name != want {
			t.Errorf("%s: %s, want %s", namespace, got.Name, want)
		}
	}
}

// A pod with several terms is near to those that all of them are about, as kube-scheduler has it (interpodaffinity/filtering.go,
// updateWithAffinityTerms, satisfyPodAffinity), and is the first only where there is no such pod by any of their labels.
func TestAffinityIsToThoseThatAllTermsAreAbout(t *testing.T) {
	const zone, host = v1.LabelTopologyZone, v1.LabelHostname
	for _, c := range []struct{ name, pod, there, keys, want string }{
		{"one has both labels", "a: y, b: y", "a: y, b: y", zone + " " + zone, ""},
		{"one has either", "", "a: y", zone + " " + zone, "nobody is there"},
		{"the first of its kind", "a: y, b: y", "c: y", zone + " " + zone, ""},
		{"matches one of its own terms", "a: y", "c: y", zone + " " + zone, "nobody is there"},
		{"one that no node's label places by the second", "a: y, b: y", "a: y, b: y", zone + " rack", "nobody is there"},
		{"one that is elsewhere by the second", "a: y, b: y", "a: y, b: y", zone + " " + host, "nobody is there"},
	} {
		zoneKey, otherKey, _ := strings.Cut(c.keys, " ")
		there := read[v1.Pod](t, fmt.Sprintf("metadata: {name: there, namespace: x, labels: {%s}}\nspec: {nodeName: n2}", strings.ReplaceAll(c.there, "y", `"y"`)))
		also := read[v1.Pod](t, "metadata: {name: also, namespace: x, labels: {b: \"y\"}}\nspec: {nodeName: n2}")
		if c.name != "one has either" {
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
		if got := cl.Ask(cl.Pod(p)).Refuses(cl.Find("n1")); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A node without a label that one of a pod's hard constraints spreads by counts for none of them, as kube-scheduler has it
// (podtopologyspread/filtering.go, calPreFilterState): its zone is no domain that is still empty, and pods there do not count.
func TestANodeCountsForAllConstraintsOrNone(t *testing.T) {
	const spread = `{topologySpreadConstraints: [
  {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: new}}},
  {maxSkew: 9, topologyKey: rack, whenUnsatisfiable: %s, labelSelector: {matchLabels: {app: new}}}]}`
	for _, c := range []struct{ name, second, want string }{
		{"both are hard", "DoNotSchedule", ""},
		{"the second is only a wish", "ScheduleAnyway", "maxSkew"},
	} {
		n1, n2 := node("n1", "a"), node("n2", "b")
		n1.Labels["rack"] = "r"
		there := read[v1.Pod](t, "metadata: {name: there, namespace: x, labels: {app: new}}\nspec: {nodeName: n1}")
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "x", Labels: there.Labels},
			Spec:       *read[v1.PodSpec](t, fmt.Sprintf(spread, c.second)),
		}
		cl := New(&Objects{Nodes: []*v1.Node{n1, n2}, Pods: []*v1.Pod{there}}, nil)
		if got := cl.Ask(cl.Pod(p)).Refuses(cl.Find("n1")); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestPlace(t *testing.T) {
	busy := read[v1.Pod](t, "metadata: {name: busy, namespace: x}\nspec: {nodeName: n1, containers: [{resources: {requests: {cpu: 1}}}]}")
	c := New(&Objects{Nodes: []*v1.Node{node("n1", "a"), node("n2", "a")}, Pods: []*v1.Pod{busy}}, nil)
	p := c.Pod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "x"}})
	if got := c.Place(p, Emptier, nil); got.Name != "n2" {
		t.Errorf("%s", got.Name)
	}
	if got := c.Place(p, Fuller, nil); got.Name != "n1" {
		t.Errorf("%s", got.Name)
	}
	if got := c.Place(p, Fuller, func(*Node) bool { return false }); got != nil {
		t.Errorf("%s", got.Name)
	}
	many := &Objects{}
	for i := range 300 {
		many.Nodes = append(many.Nodes, node(fmt.Sprintf("n%03d", i), "a"))
	}
	c = New(many, nil)
	if one, two := c.Place(c.Pod(p.Pod), Emptier, nil), c.Place(c.Pod(p.Pod), Emptier, nil); one != two {
		t.Errorf("the same pod goes to %s and %s", one.Name, two.Name)
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
		want  string // of each: + goes, - does not
	}{
		{"by its spec, two of four are healthy", func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = new(intstr.FromInt32(1)) }, []int{0, 1}, "+-"},
		{"unhealthy ones go while enough are healthy", func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = new(intstr.FromInt32(2)) },
			[]int{0, 2}, "-+"},
		{"too few are healthy", func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = new(intstr.FromString("75%")) }, []int{2}, "-"},
		{"and they go all the same", func(b *policyv1.PodDisruptionBudget) {
			b.Spec.MinAvailable, b.Spec.UnhealthyPodEvictionPolicy = new(intstr.FromString("75%")), new(policyv1.AlwaysAllow)
		}, []int{2, 0}, "+-"},
		{"pending and failed ones go", func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = new(intstr.FromInt32(0)) }, []int{3, 4, 0}, "++-"},
		{"by its status", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed = 1 }, []int{0, 1}, "+-"},
		{"its status is stale", func(b *policyv1.PodDisruptionBudget) {
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
			t.Errorf("%s: %s, want %s", one.name, got, one.want)
		}
		if again := NewBudgets(c, budgets.Left()); again.Spend(pods[0]) == "" && strings.HasSuffix(one.want, "-") {
			t.Errorf("%s: what is left lets more go", one.name)
		}
	}
}

// Of several pods that keep one from a node it is always the same that is named: the first by name.
func TestRefusesNamesTheFirstByName(t *testing.T) {
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
		if got := c.Ask(c.Pod(p)).Refuses(c.Find("n1")); got != "anti-affinity keeps it from where x/a is" {
			t.Fatalf("got %q", got)
		}
	}
}

// What the cluster has been asked for once is right after pods have come and gone.
func TestTheIndexFollowsThePods(t *testing.T) {
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
		by := pickBy(selectorOf(s))
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
		t.Errorf("got %q", got)
	}
	added := c.Pod(made("c", "web"))
	c.Put(added, c.Find("n1"))
	if got := found(); got != "ac abc" {
		t.Errorf("once one has come: %q", got)
	}
	c.Remove(added)
	if got := found(); got != "a ab" {
		t.Errorf("once it has gone: %q", got)
	}
}
