package deschedule

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"jettison/cluster/model"
)

func TestEvictorCases(t *testing.T) {
	threshold := &PriorityThreshold{Value: new(int32(800))}
	prefer, evict := annotation(preferAnnotation), annotation(evictAnnotation)
	pvc := func(classes ...string) *DefaultEvictorArgs {
		a := &DefaultEvictorArgs{PodProtections: PodProtections{ExtraEnabled: []string{PodsWithPVC}}}
		if classes != nil {
			a.PodProtections.Config = &PodProtectionsConfig{PodsWithPVC: &PodsWithPVCConfig{}}
			for _, class := range classes {
				a.PodProtections.Config.PodsWithPVC.ProtectedStorageClasses = append(
					a.PodProtections.Config.PodsWithPVC.ProtectedStorageClasses, ProtectedStorageClass{class})
			}
		}
		return a
	}
	resources := func(p *v1.Pod) { p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c"}} }
	second := func(p *v1.Pod) {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: "X", Name: "x", UID: "x"})
	}
	far := func() []*v1.Node { return cluster(node("n1"), node("n2", taint("t", "v", v1.TaintEffectNoSchedule))) }
	for _, c := range []struct {
		id    string
		pods  []*v1.Pod
		args  *DefaultEvictorArgs
		want  bool
		nodes []*v1.Node
	}{
		{"EF1", podList(pod("p", "n1", bare, phase(v1.PodFailed))), &DefaultEvictorArgs{}, false, nil},
		{"EF2", podList(pod("p", "n1", bare)), &DefaultEvictorArgs{EvictFailedBarePods: true}, false, nil},
		{"EF4", podList(pod("p", "n1", ownedByPod)), &DefaultEvictorArgs{}, true, nil},
		{"EF5", podList(pod("p", "n1", ownedByPod, local)), &DefaultEvictorArgs{}, false, nil},
		{"EF7", podList(pod("p", "n1", ownedByPod, local, evict)), &DefaultEvictorArgs{}, true, nil},
		{"EF8", podList(pod("p", "n1", daemon)), &DefaultEvictorArgs{}, false, nil},
		{"EF10", podList(pod("p", "n1", ownedByPod, mirror)), &DefaultEvictorArgs{}, false, nil},
		{"EF11", podList(pod("p", "n1", ownedByPod, crit)), &DefaultEvictorArgs{}, false, nil},
		{"EF13", podList(pod("p", "n1", ownedByPod, priority(900))), &DefaultEvictorArgs{PriorityThreshold: threshold}, false, nil},
		{"EF14", podList(pod("p", "n1", ownedByPod, priority(900))), &DefaultEvictorArgs{PriorityThreshold: threshold, EvictSystemCriticalPods: true}, true, nil},
		{"EF16", podList(pod("p", "n1", ownedByPod, prefer)), &DefaultEvictorArgs{NoEvictionPolicy: MandatoryNoEviction}, false, nil},
		{"EF17", podList(pod("p", "n1", ownedByPod), pod("p2", "n1", ownedByPod)), &DefaultEvictorArgs{MinReplicas: 2}, true, nil},
		{"EF19", podList(pod("p", "n1", ownedByPod, second)), &DefaultEvictorArgs{MinReplicas: 2}, true, nil},
		{"EF20", podList(pod("p", "n1", ownedByPod, started(10*time.Minute))), &DefaultEvictorArgs{MinPodAge: &metav1.Duration{Duration: 50 * time.Minute}}, false, nil},
		{"EF22", podList(pod("p", "n1", ownedByPod, claims("foo"))), &DefaultEvictorArgs{IgnorePvcPods: true}, false, nil},
		{"EF23", podList(pod("p", "n1", ownedByPod, claims("foo"))), pvc("standard"), false, nil},
		{"EF25", podList(pod("p", "n1", ownedByPod, claims("missing"))), pvc("protected"), false, nil},
		{"a claim without a class", podList(pod("p", "n1", ownedByPod, claims("none"))), pvc("protected"), false, nil},
		{"a claim with an empty class", podList(pod("p", "n1", ownedByPod, claims("empty"))), pvc("protected"), false, nil},
		{"EF26", podList(pod("p", "n1", ownedByPod, label("app", "foo"))), &DefaultEvictorArgs{IgnorePodsWithoutPDB: true}, false, nil},
		{"EF28", podList(pod("p", "n1", ownedByPod, resources)), &DefaultEvictorArgs{PodProtections: PodProtections{ExtraEnabled: []string{PodsWithResourceClaims}}},
			false, nil},
		{"EF29", podList(pod("p", "n1", ownedByPod)), &DefaultEvictorArgs{NodeFit: true}, true, far()},
		{"XEF34", podList(pod("p", "n1", ownedByPod, evict, prefer)), &DefaultEvictorArgs{NoEvictionPolicy: MandatoryNoEviction}, true, nil},
		{"XEF35", podList(pod("p", "n1", ownedByPod, priority(900))), &DefaultEvictorArgs{PriorityThreshold: &PriorityThreshold{Value: new(int32(10))},
			PodProtections: PodProtections{DefaultDisabled: []string{SystemCriticalPods}}}, true, nil},
	} {
		t.Run(c.id, func(t *testing.T) {
			if c.nodes == nil {
				c.nodes = two()
			}
			why, _ := filterResults(t, c.args, c.nodes, c.pods)
			if (why == "") != c.want {
				t.Errorf("filter = %q, want evictable = %t", why, c.want)
			}
		})
	}
}

// filterResults returns what the two filters of an evictor return for the first pod.
func filterResults(t *testing.T, args *DefaultEvictorArgs, nodes []*v1.Node, pods []*v1.Pod) (keeps, late string) {
	t.Helper()
	c := plan{evictor: args}
	s := &Snapshot{}
	s.Nodes, s.Pods = nodes, pods
	for name, class := range map[string]*string{"foo": new("standard"), "none": nil, "empty": new("")} {
		s.Claims = append(s.Claims, &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: v1.PersistentVolumeClaimSpec{StorageClassName: class}})
	}
	p, err := newPlanner(c.policy(t), s, t0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEvictor(p, &p.policy.Profiles[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range p.cluster.Pods() {
		if pod.Name == pods[0].Name {
			return e.filter(pod), e.preEvictionFilter(pod)
		}
	}
	t.Fatalf("pod %s is missing in the model", pods[0].Name)
	return "", ""
}

func TestPreEvictionCases(t *testing.T) {
	east := cluster(node("n1"), node("n2", nodeLabel("datacenter", "east")), node("n3", nodeLabel("datacenter", "east")))
	if _, late := filterResults(t, &DefaultEvictorArgs{}, east, podList(pod("p", "n1", selects("datacenter", "fail")))); late != "" {
		t.Errorf("EF31: preEvictionFilter = %q, want no reason", late)
	}
	small := cluster(node("n1"), sized("n2", 10, 16, 10), sized("n3", 10, 16, 10))
	if _, late := filterResults(t, &DefaultEvictorArgs{NodeFit: true}, small, podList(pod("p", "n1", request("cpu", 12), request("memory", 8)))); late == "" {
		t.Error("EF32: preEvictionFilter = \"\", want a reason of nodeFit")
	}
}

// Labels of a namespace that is not in the snapshot are unknown: a selector that needs them keeps
// its pods.
func TestPodOfUnknownNamespaceStays(t *testing.T) {
	free := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "protected", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	if _, late := filterResults(t, &DefaultEvictorArgs{NamespaceLabelSelector: free}, two(), podList(pod("p", "n1"))); !strings.Contains(late, "namespace is unknown") {
		t.Errorf("preEvictionFilter = %q, want an unknown namespace", late)
	}
	named := &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: "default"}}
	if _, late := filterResults(t, &DefaultEvictorArgs{NamespaceLabelSelector: named}, two(), podList(pod("p", "n1"))); late != "" {
		t.Errorf("selector on the name label: preEvictionFilter = %q, want no reason", late)
	}
}

// nodeFit counts the replacements of the pods that the same strategy evicted before: only one of two
// old pods has another node.
func TestNodeFitCountsReplacements(t *testing.T) {
	half := request(v1.ResourceCPU, 1000)
	restarted := func(p *v1.Pod) { p.Status.ContainerStatuses = []v1.ContainerStatus{{RestartCount: 9}} }
	for strategy, args := range map[string]any{
		PodLifeTime:     &PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(600))},
		TooManyRestarts: &TooManyRestartsArgs{PodRestartThreshold: 5},
	} {
		p := plan{strategy: strategy, args: args, evictor: &DefaultEvictorArgs{NodeFit: true},
			nodes: cluster(node("n1", cordoned), node("n2")),
			pods:  podList(pod("a", "n1", half, restarted), pod("b", "n1", half, restarted), pod("c", "n2", half, aged(0)))}
		r := p.run(t)
		if got := skipReason(r, "b"); !slices.Equal(names(r), []string{"a"}) || !strings.HasPrefix(got, "nodeFit: pod fits on no other node") {
			t.Errorf("%s: evictions = %v, want a; b stays because of %q, want nodeFit", strategy, names(r), got)
		}
	}
}

// A failed pod is no replica: its eviction takes none from its owner.
func TestFailedPodIsNoReplica(t *testing.T) {
	often := func(p *v1.Pod) { p.Status.ContainerStatuses = []v1.ContainerStatus{{RestartCount: 200}} }
	p := plan{strategy: TooManyRestarts, args: &TooManyRestartsArgs{PodRestartThreshold: 100}, evictor: &DefaultEvictorArgs{MinReplicas: 3},
		nodes: two(), pods: podList(pod("a", "n1", often), pod("b", "n1", often, phase(v1.PodFailed)), pod("c", "n2", often))}
	if r := p.run(t); !slices.Equal(names(r), []string{"b"}) || !strings.Contains(skipReason(r, "c"), "2 active pods, fewer than minReplicas 3") {
		t.Errorf("evictions = %v, want b; skipped %v, want a and c because of minReplicas", names(r), r.Skipped)
	}
}

func TestLimitCases(t *testing.T) {
	for id, c := range map[string]struct {
		limits limits
		want   int
		reason string
	}{
		"LM1": {limits{1, 1, 1}, 1, ""},
		"LM2": {limits{0, 1, 1}, 0, limitTotal},
		"LM4": {limits{1, 1, 0}, 0, limitNamespace},
		"LM5": {limits{1, 1, 1}, 1, ""},
	} {
		t.Run(id, func(t *testing.T) {
			p := plan{strategy: PodLifeTime, args: &PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(600))}, limits: &c.limits, nodes: two(),
				pods: podList(pod("a", "n1"))}
			r := p.run(t)
			if len(r.Evictions) != c.want || skipReason(r, "a") != c.reason {
				t.Errorf("evictions = %v, skip reason = %q, want %d, %q", names(r), skipReason(r, "a"), c.want, c.reason)
			}
			if stopped := len(r.Stopped) > 0; stopped != (c.reason == limitTotal) {
				t.Errorf("stopped = %v, want a stop: %t", r.Stopped, c.reason == limitTotal)
			}
		})
	}
	t.Run("XLM11", func(t *testing.T) { // a dry run honors budgets like a real run
		p := plan{strategy: PodLifeTime, args: &PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(600))}, nodes: two(),
			pods: podList(pod("a", "n1", label("app", "a"))),
			edit: func(_ *Policy, s *Snapshot) {
				s.Budgets = []*policyv1.PodDisruptionBudget{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
					Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(0)),
						Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}}}
			}}
		if r := p.run(t); len(r.Evictions) != 0 || !strings.Contains(skipReason(r, "a"), "PodDisruptionBudget b allows no more disruptions") {
			t.Errorf("evictions = %v, skip reason = %q, want none because of budget b", names(r), skipReason(r, "a"))
		}
	})
}

func TestSortCase(t *testing.T) {
	low, high := priority(0), priority(10000)
	be, bu, gu, no := qos(v1.PodQOSBestEffort), qos(v1.PodQOSBurstable), qos(v1.PodQOSGuaranteed), annotation(preferAnnotation)
	pods := podList(pod("p1", "n1", low), pod("p2", "n1", high, be), pod("p3", "n1", high, bu), pod("p4", "n1", high, gu), pod("p5", "n1", be),
		pod("p6", "n1", gu), pod("p7", "n1", low, no), pod("p8", "n1", high, be, no), pod("p9", "n1", high, bu, no), pod("p10", "n1", high, gu, no),
		pod("p11", "n1", bu), pod("p12", "n1", bu, no))
	s := &Snapshot{}
	s.Nodes, s.Pods = two(), pods
	c := model.New(&s.Objects, nil)
	var got []string
	for _, p := range sorted(c.Nodes[0].Pods, byEvictionOrder) {
		got = append(got, p.Name)
	}
	if want := "p5 p11 p12 p6 p1 p7 p2 p8 p3 p9 p4 p10"; strings.Join(got, " ") != want {
		t.Errorf("SO1: eviction order = %v, want %s", got, want)
	}
}

func TestPolicyCases(t *testing.T) {
	bad := func(args *DefaultEvictorArgs) error {
		return (&Policy{Profiles: []Profile{{PluginConfig: []PluginConfig{{DefaultEvictor, args}}}}}).Complete()
	}
	if err := bad(&DefaultEvictorArgs{PriorityThreshold: &PriorityThreshold{Value: new(int32(2000000001))}}); err == nil ||
		!strings.Contains(err.Error(), "priority threshold can't be greater than 2000000000") {
		t.Errorf("PO1: Complete() = %v, want an error about the priority threshold", err)
	}
	p := &Policy{Profiles: []Profile{{}}}
	if err := p.Complete(); err != nil || !slices.Contains(p.Profiles[0].Plugins.Filter.Enabled, DefaultEvictor) ||
		!slices.Contains(p.Profiles[0].Plugins.PreEvictionFilter.Enabled, DefaultEvictor) ||
		*p.Profiles[0].args(DefaultEvictor).(*DefaultEvictorArgs).PriorityThreshold.Value != 2000000000 {
		t.Errorf("PO2: Complete() = %v, profile %+v, want DefaultEvictor with its defaults", err, p.Profiles[0])
	}
	if bad(&DefaultEvictorArgs{PodProtections: PodProtections{DefaultDisabled: []string{PodsWithPVC}}}) == nil {
		t.Error("PO4: Complete() accepts PodsWithPVC in defaultDisabled, want an error")
	}
}

// A priority threshold may name a PriorityClass. Without that class, or above the priority of system
// pods, there is no plan.
func TestThresholdOfPriorityClass(t *testing.T) {
	for class, want := range map[string]string{"low": "", "high": "", "system": "", "above": "can't be greater than 2000000000", "missing": "not found"} {
		p := plan{strategy: PodLifeTime, args: lifeTime(), evictor: &DefaultEvictorArgs{PriorityThreshold: &PriorityThreshold{Name: class}}, nodes: two(),
			pods: podList(pod("p50", "n1", priority(50)), pod("p100", "n1", priority(100)), pod("p200", "n1", priority(200)))}
		policy, s := p.policy(t), &Snapshot{}
		s.Nodes, s.Pods = p.nodes, p.pods
		for name, value := range map[string]int32{"low": 100, "high": 200, "system": criticalPriority, "above": criticalPriority + 1} {
			s.PriorityClasses = append(s.PriorityClasses, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
		}
		r, err := Plan(policy, s, t0)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error = %v, want %q", class, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: error = %v, want none", class, err)
		} else if evicted := map[string]int{"low": 1, "high": 2, "system": 3}[class]; len(r.Evictions) != evicted {
			t.Errorf("%s: evictions = %v, want the %d below the threshold", class, names(r), evicted)
		}
	}
}

// The namespace selector of the evictor and nodeFit keep pods, each with its reason.
func TestPreEvictionReasons(t *testing.T) {
	team := &DefaultEvictorArgs{NamespaceLabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: "team"}}}
	any := &DefaultEvictorArgs{NamespaceLabelSelector: &metav1.LabelSelector{}}
	fit := &DefaultEvictorArgs{NodeFit: true}
	for name, c := range map[string]struct {
		args  *DefaultEvictorArgs
		nodes []*v1.Node
		edit  edit
		want  string
	}{
		"namespace":          {team, two(), inSpace("team"), ""},
		"another namespace":  {team, two(), inSpace("other"), "namespace does not match namespaceLabelSelector of DefaultEvictor"},
		"empty selector":     {any, two(), inSpace("other"), ""},
		"another node":       {fit, two(), inSpace("x"), ""},
		"no other node":      {fit, cluster(node("n1")), inSpace("x"), "nodeFit: no other ready node"},
		"fits on none":       {fit, cluster(node("n1"), node("n2", cordoned)), inSpace("x"), "nodeFit: pod fits on no other node: node is cordoned"},
		"none, without that": {&DefaultEvictorArgs{}, cluster(node("n1")), inSpace("x"), ""},
	} {
		if _, why := filterResults(t, c.args, c.nodes, podList(pod("p", "n1", c.edit))); why != c.want {
			t.Errorf("%s: preEvictionFilter = %q, want %q", name, why, c.want)
		}
	}
}

// Earlier evictions of a plan count for nodeFit: the only node that the evictor may use takes one pod.
func TestNodeFitCountsEarlierEvictions(t *testing.T) {
	p := plan{strategy: RemoveDuplicates, args: &RemoveDuplicatesArgs{}, evictor: &DefaultEvictorArgs{NodeFit: true, NodeSelector: "pool=a"},
		nodes: cluster(machine("n1", 4000), sized("n2", 32000, 64<<30, 1, nodeLabel("pool", "a")), machine("n3", 4000)), pods: podsNamed(6, "p", "n1")}
	if r := p.run(t); len(r.Evictions) != 1 || r.Evictions[0].To != "n2" || skipped(r, "nodeFit: pod fits on no other node: insufficient pods") == 0 {
		t.Errorf("evictions = %+v, want one to n2; skipped %v", r.Evictions, r.Skipped)
	}
}

// Only claims of the protected storage classes protect a pod; without such classes all claims do.
func TestProtectedStorageClasses(t *testing.T) {
	for class, want := range map[string]string{"": "uses PersistentVolumeClaim foo", "standard": "protected storage class standard", "other": ""} {
		a := &DefaultEvictorArgs{PodProtections: PodProtections{ExtraEnabled: []string{PodsWithPVC}, Config: &PodProtectionsConfig{}}}
		if class != "" {
			a.PodProtections.Config.PodsWithPVC = &PodsWithPVCConfig{ProtectedStorageClasses: []ProtectedStorageClass{{class}}}
		}
		if why, _ := filterResults(t, a, two(), podList(pod("p", "n1", claims("foo")))); (why == "") != (want == "") || !strings.Contains(why, want) {
			t.Errorf("protected class %q: filter = %q, want %q", class, why, want)
		}
	}
}
