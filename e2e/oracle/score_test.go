package oracle

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	placement "jettison/cluster/model"
)

// scorer has the score plugins of kube-scheduler with their default weights.
type scorer struct {
	plugins  []fwk.Plugin
	weights  []int64
	snapshot *cache.Snapshot
}

func newScorer(t *testing.T, nodes []*v1.Node, pods []*v1.Pod, owners []runtime.Object, packing config.ScoringStrategyType) *scorer {
	t.Helper()
	ctx := t.Context()
	s := &scorer{snapshot: cache.NewSnapshot(pods, nodes)}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	for _, o := range owners {
		if err := factory.Apps().V1().ReplicaSets().Informer().GetIndexer().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"default", "other"} {
		if err := factory.Core().V1().Namespaces().Informer().GetIndexer().Add(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	handle, err := frameworkruntime.NewFramework(ctx, nil, nil, frameworkruntime.WithSnapshotSharedLister(s.snapshot),
		frameworkruntime.WithInformerFactory(factory))
	if err != nil {
		t.Fatal(err)
	}
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	resources := []config.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}
	for _, one := range []struct {
		weight int64
		args   runtime.Object
		made   func(context.Context, runtime.Object, fwk.Handle, feature.Features) (fwk.Plugin, error)
	}{
		{3, nil, tainttoleration.New},
		{2, &config.NodeAffinityArgs{}, nodeaffinity.New},
		{1, &config.NodeResourcesFitArgs{ScoringStrategy: &config.ScoringStrategy{Type: packing, Resources: resources}}, noderesources.NewFit},
		{2, &config.PodTopologySpreadArgs{DefaultingType: config.SystemDefaulting}, podtopologyspread.New},
		{2, &config.InterPodAffinityArgs{HardPodAffinityWeight: 1}, interpodaffinity.New},
		{1, &config.NodeResourcesBalancedAllocationArgs{Resources: resources}, noderesources.NewBalancedAllocation},
	} {
		plugin, err := one.made(ctx, one.args, handle, features)
		if err != nil {
			t.Fatal(err)
		}
		s.plugins, s.weights = append(s.plugins, plugin), append(s.weights, one.weight)
	}
	return s
}

// score returns the weighted scores of the named nodes, as the scheduler computes them.
func (s *scorer) score(t *testing.T, p *v1.Pod, names []string) map[string]int64 {
	t.Helper()
	ctx, state, out := t.Context(), framework.NewCycleState(), map[string]int64{}
	var nodes []fwk.NodeInfo
	for _, name := range names {
		n, err := s.snapshot.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
		out[name] = 0
	}
	for i, plugin := range s.plugins {
		if pre, ok := plugin.(fwk.PreScorePlugin); ok {
			status := pre.PreScore(ctx, state, p, nodes)
			if status.IsSkip() {
				continue
			}
			if !status.IsSuccess() {
				t.Fatalf("plugin %s for pod %s: status = %v, want success", plugin.Name(), p.Name, status)
			}
		}
		scoring := plugin.(fwk.ScorePlugin)
		var list fwk.NodeScoreList
		for _, n := range nodes {
			value, status := scoring.Score(ctx, state, p, n)
			if !status.IsSuccess() {
				t.Fatalf("plugin %s for pod %s: status = %v, want success", plugin.Name(), p.Name, status)
			}
			list = append(list, fwk.NodeScore{Name: n.Node().Name, Score: value})
		}
		if e := scoring.ScoreExtensions(); e != nil {
			if status := e.NormalizeScore(ctx, state, p, list); !status.IsSuccess() {
				t.Fatalf("plugin %s for pod %s: status = %v, want success", plugin.Name(), p.Name, status)
			}
		}
		for _, one := range list {
			out[one.Name] += s.weights[i] * one.Score
		}
	}
	return out
}

// crowd makes random clusters with all properties that scores depend on.
type crowd struct{ *rand.Rand }

func (c *crowd) one(in int) bool { return c.IntN(in) == 0 }

func (c *crowd) nodes() (out []*v1.Node) {
	for i := range 2 + c.IntN(7) {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: map[string]string{v1.LabelHostname: fmt.Sprintf("n%d", i),
			"disk": []string{"ssd", "hdd"}[c.IntN(2)]}}}
		if !c.one(6) {
			n.Labels[v1.LabelTopologyZone] = string(rune('a' + c.IntN(3)))
		}
		if c.one(3) {
			n.Labels["rack"] = string(rune('r' + c.IntN(2)))
		}
		if c.one(12) {
			n.Labels = nil
		}
		for _, key := range []string{"a", "b"} {
			if c.one(4) {
				n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Effect: v1.TaintEffectPreferNoSchedule})
			}
		}
		n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(int64(2000+1000*c.IntN(7)), resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(int64(2+c.IntN(15))<<30, resource.BinarySI), v1.ResourcePods: resource.MustParse("110")}
		n.Status.Capacity = n.Status.Allocatable
		out = append(out, n)
	}
	return out
}

func (c *crowd) container() v1.Container {
	out := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}}}
	if !c.one(4) {
		out.Resources.Requests[v1.ResourceCPU] = *resource.NewMilliQuantity(int64(c.IntN(12)*50), resource.DecimalSI)
	}
	if !c.one(4) {
		out.Resources.Requests[v1.ResourceMemory] = *resource.NewQuantity(int64(c.IntN(10))<<27, resource.BinarySI)
	}
	return out
}

func (c *crowd) term(of int) v1.PodAffinityTerm {
	out := v1.PodAffinityTerm{TopologyKey: []string{v1.LabelHostname, v1.LabelTopologyZone, "rack"}[c.IntN(3)],
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprintf("o%d", of)}}}
	switch c.IntN(5) {
	case 0:
		out.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}
	case 1:
		out.Namespaces = []string{"other", "default"}
	case 2:
		out.NamespaceSelector = &metav1.LabelSelector{}
	}
	return out
}

// terms gives pods of an owner their scheduling terms.
func (c *crowd) terms(i, owners int, s *v1.PodSpec) {
	a := &v1.Affinity{}
	weighted := func() []v1.WeightedPodAffinityTerm {
		return []v1.WeightedPodAffinityTerm{{Weight: int32(1 + c.IntN(100)), PodAffinityTerm: c.term(c.IntN(owners))},
			{Weight: int32(1 + c.IntN(9)), PodAffinityTerm: c.term(i)}}[:1+c.IntN(2)]
	}
	if c.one(4) {
		a.PodAffinity = &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted()}
	}
	if c.one(3) {
		a.PodAntiAffinity = &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted()}
	}
	if c.one(8) {
		a.PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{c.term(i)}}
	}
	if c.one(3) {
		a.NodeAffinity = &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{
			{Weight: int32(1 + c.IntN(100)), Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: "disk", Operator: v1.NodeSelectorOpIn, Values: []string{"ssd"}}}}},
			{Weight: int32(1 + c.IntN(100)), Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{"a"}}}}}}[:1+c.IntN(2)]}
	}
	s.Affinity = a
	for range c.IntN(8) / 5 {
		k := v1.TopologySpreadConstraint{MaxSkew: int32(1 + c.IntN(3)), WhenUnsatisfiable: v1.ScheduleAnyway,
			TopologyKey:   []string{v1.LabelHostname, v1.LabelTopologyZone, "rack"}[c.IntN(3)],
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprintf("o%d", i)}}}
		switch c.IntN(6) {
		case 0:
			k.WhenUnsatisfiable, k.MaxSkew = v1.DoNotSchedule, 5
		case 1:
			k.LabelSelector = &metav1.LabelSelector{}
		case 2:
			k.NodeAffinityPolicy = new(v1.NodeInclusionPolicyIgnore)
		}
		s.TopologySpreadConstraints = append(s.TopologySpreadConstraints, k)
	}
	if c.one(4) {
		s.NodeSelector = map[string]string{"disk": "ssd"}
	}
	if c.one(4) {
		s.Tolerations = []v1.Toleration{{Key: "a", Operator: v1.TolerationOpExists, Effect: []v1.TaintEffect{"", v1.TaintEffectPreferNoSchedule,
			v1.TaintEffectNoSchedule}[c.IntN(3)]}}
	}
}

// pods returns the pods of several owners on random nodes, and the owners.
func (c *crowd) pods(nodes []*v1.Node) (out []*v1.Pod, owners []runtime.Object) {
	count := 1 + c.IntN(5)
	for i := range count {
		name := fmt.Sprintf("o%d", i)
		spec, labels := v1.PodSpec{SchedulerName: v1.DefaultSchedulerName}, map[string]string{"app": name}
		for range 1 + c.IntN(5)/4 {
			spec.Containers = append(spec.Containers, c.container())
		}
		if c.one(6) {
			spec.InitContainers = []v1.Container{c.container()}
		}
		c.terms(i, count, &spec)
		owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID(name), Controller: new(true)}
		if c.one(5) {
			owner.APIVersion, owner.Kind = "batch/v1", "Job"
		}
		namespace := []string{"default", "default", "other"}[c.IntN(3)]
		owners = append(owners, &apps.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)},
			Spec: apps.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}})
		for j := range c.IntN(7) {
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, j), Labels: labels,
				UID: types.UID(fmt.Sprintf("%s-%d", name, j)), OwnerReferences: []metav1.OwnerReference{owner}}, Spec: *spec.DeepCopy()}
			p.Spec.NodeName, p.Status.Phase = nodes[c.IntN(len(nodes))].Name, v1.PodRunning
			if c.one(8) {
				p.DeletionTimestamp = &metav1.Time{Time: start}
			}
			out = append(out, p)
		}
	}
	return out, owners
}

// The model scores nodes for the replacement of a pod exactly as the plugins of kube-scheduler do,
// while the pod is still being deleted and once it is gone.
func TestScoresAreThoseOfTheScheduler(t *testing.T) {
	metrics.Register() // the plugins write to them
	compared := 0
	for seed := range 300 {
		c := &crowd{rand.New(rand.NewPCG(uint64(seed), 38))}
		nodes := c.nodes()
		pods, owners := c.pods(nodes)
		profile, packing := placement.DefaultProfile(), config.LeastAllocated
		if c.one(2) {
			profile.Packing, packing = placement.MostAllocated, config.MostAllocated
		}
		spaces := []*v1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, {ObjectMeta: metav1.ObjectMeta{Name: "other"}}}
		cluster := placement.New(&placement.Objects{Nodes: nodes, Pods: pods, Namespaces: spaces}, nil)
		for _, p := range cluster.Pods() {
			if p.DeletionTimestamp != nil || !c.one(3) {
				continue
			}
			made := p.Pod.DeepCopy()
			made.Name, made.UID, made.Spec.NodeName = "new", "new", ""
			for _, terminating := range []bool{true, false} {
				check, others := cluster.FitCheck(p), slices.Clone(pods)
				i := slices.Index(others, p.Pod)
				if terminating {
					check, others[i] = cluster.FitCheck(p).Successor(), p.Pod.DeepCopy()
					others[i].DeletionTimestamp = &metav1.Time{Time: start}
				} else {
					others = slices.Delete(others, i, i+1)
				}
				got := check.Scores(profile)
				names := slices.Sorted(maps.Keys(got))
				if len(names) == 0 {
					continue
				}
				compared++
				if want := newScorer(t, nodes, others, owners, packing).score(t, made, names); !maps.Equal(got, want) {
					t.Errorf("seed %d: scores for the replacement of %s (terminating: %t, %s) = %v, want %v", seed, p.Key(), terminating, packing, got, want)
				}
			}
		}
	}
	t.Logf("%d scores of pods compared", compared)
	if compared < 500 {
		t.Errorf("%d pods compared, want at least 500", compared)
	}
}
