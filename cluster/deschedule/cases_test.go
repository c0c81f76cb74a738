package deschedule

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testCase is a case from the tables of the descheduler (0.36.0) with its id. differs explains an
// intended difference.
type testCase struct {
	id string
	plan
	want int
	// exactly these evictions, in this order; nil: any want pods
	wantNames []string
	differs   string
}

func (c *testCase) test(t *testing.T) {
	t.Run(c.id, func(t *testing.T) {
		r := c.run(t)
		if len(r.Evictions) != c.want && c.wantNames == nil || c.wantNames != nil && !slices.Equal(names(r), c.wantNames) {
			t.Errorf("evictions = %v, want %d %v; stopped %v, skipped %v", names(r), c.want, c.wantNames, r.Stopped, r.Skipped)
		}
	})
}

func two() []*v1.Node { return cluster(node("n1"), node("n2")) }

func TestLifeTimeCases(t *testing.T) {
	age := func(most uint, states ...string) *PodLifeTimeArgs {
		return &PodLifeTimeArgs{MaxPodLifeTimeSeconds: &most, States: states}
	}
	sec := time.Second
	for _, c := range []testCase{
		{id: "PL1", plan: plan{args: age(600), pods: podList(pod("a", "n1", aged(0)), pod("b", "n1", aged(605*sec)))}, want: 1},
		{id: "PL2", plan: plan{args: age(600), pods: podList(pod("a", "n1", aged(0)), pod("b", "n1", aged(595*sec)))}, want: 0},
		{id: "PL4", plan: plan{args: age(600), limits: &limits{1, -1, -1}, pods: podList(pod("new", "n1", aged(700*sec)), pod("old", "n1", aged(900*sec)))},
			wantNames: []string{"old"}},
		{id: "PL5", plan: plan{args: age(600, "Pending"), pods: podList(pod("pending", "n1", phase(v1.PodPending)), pod("running", "n1"))},
			wantNames: []string{"pending"}},
		{id: "PL7", plan: plan{args: &PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(600)), States: []string{"CreateContainerError"},
			IncludingInitContainers: true}, pods: podList(pod("a", "n1", state(true, waits("CreateContainerError"))))}, want: 1},
		{id: "PL8", plan: plan{args: age(600, "NodeLost"), pods: podList(pod("a", "n1", statusReason("NodeLost")))}, want: 1},
		{id: "PL10", plan: plan{args: &PodLifeTimeArgs{States: []string{"Failed"}, ExitCodes: []int32{2}},
			pods: podList(pod("a", "n1", phase(v1.PodFailed), state(false, endedWith("Error", 1))))}, want: 0},
		{id: "PL11", plan: plan{args: &PodLifeTimeArgs{States: []string{"Failed"}, OwnerKinds: &OwnerKinds{Exclude: []string{"Job"}}},
			pods: podList(pod("job", "n1", phase(v1.PodFailed), owned("Job", "j")), pod("rs", "n1", phase(v1.PodFailed)))}, wantNames: []string{"rs"}},
	} {
		c.strategy, c.nodes = PodLifeTime, two()
		c.test(t)
	}
}

func restartPods(edits ...edit) (out []*v1.Pod) {
	for i := range 10 {
		p := pod(fmt.Sprint(i), "n1", edits...)
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, v1.ContainerStatus{RestartCount: int32(5 * i)})
		for range 2 {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{RestartCount: int32(10 * i)})
		}
		switch i {
		case 6:
			daemon(p)
		case 7:
			local(p)
		case 8:
			mirror(p)
		}
		out = append(out, p)
	}
	return out
}

func TestRestartCases(t *testing.T) {
	args := func(threshold int32, init bool, states ...string) *TooManyRestartsArgs {
		return &TooManyRestartsArgs{PodRestartThreshold: threshold, IncludingInitContainers: init, States: states}
	}
	node3 := &limits{-1, 3, -1}
	for _, c := range []testCase{
		{id: "RS1", plan: plan{args: args(10000, true)}, want: 0},
		{id: "RS2", plan: plan{args: args(1, true)}, want: 6},
		{id: "RS4", plan: plan{args: args(25, false)}, want: 5},
		{id: "RS5", plan: plan{args: args(20, false)}, want: 6},
		{id: "RS7", plan: plan{args: args(101, false)}, wantNames: []string{"9"}},
		{id: "RS8", plan: plan{args: args(1, true), limits: node3}, wantNames: []string{"9", "5", "4"}},
		{id: "RS10", plan: plan{args: args(1, false, "CrashLoopBackOff"), limits: node3, pods: restartPods(state(false, waits("CrashLoopBackOff")))},
			want: 3},
		{id: "RS11", plan: plan{args: args(1, false, "Running"), pods: restartPods(phase(v1.PodPending))}, want: 0},
	} {
		c.strategy, c.nodes = TooManyRestarts, cluster(node("n1"), node("n2"))
		if c.pods == nil {
			c.pods = restartPods()
		}
		c.test(t)
	}
}

func TestFailedCases(t *testing.T) {
	failed := func(name string, edits ...edit) *v1.Pod {
		return pod(name, "n1", append([]edit{aged(0), phase(v1.PodFailed)}, edits...)...)
	}
	for _, c := range []testCase{
		{id: "FP1", plan: plan{args: &RemoveFailedPodsArgs{}, pods: podList(failed("a", state(false, endedWith("NodeAffinity", 1))))}, want: 1},
		{id: "FP2", plan: plan{args: &RemoveFailedPodsArgs{ExitCodes: []int32{2}}, pods: podList(failed("a", state(false, endedWith("Error", 1))))}, want: 0},
		{id: "FP4", plan: plan{args: &RemoveFailedPodsArgs{Reasons: []string{"CreateContainerConfigError"}},
			pods: podList(failed("a", state(true, waits("CreateContainerConfigError"))))}, want: 0},
		{id: "FP5", plan: plan{args: &RemoveFailedPodsArgs{Reasons: []string{"CreateContainerConfigError", "NodeAffinity"}},
			pods: podList(failed("a", state(false, endedWith("CreateContainerConfigError", 1))))}, want: 1},
		{id: "FP7", plan: plan{args: &RemoveFailedPodsArgs{ExcludeOwnerKinds: []string{"ReplicaSet"}, IncludingInitContainers: true},
			pods: podList(failed("a", state(true, endedWith("NodeAffinity", 1))))}, want: 0},
		{id: "FP8", plan: plan{args: &RemoveFailedPodsArgs{Reasons: []string{"Shutdown"}},
			pods: podList(failed("a", statusReason("Shutdown")), failed("b", statusReason("Shutdown")))}, want: 2},
	} {
		c.strategy, c.nodes = RemoveFailedPods, two()
		c.edit = func(p *Policy, _ *Snapshot) {
			p.Profiles[0].args(RemoveFailedPods).(*RemoveFailedPodsArgs).MinPodLifetimeSeconds = nil
		}
		c.test(t)
	}
	t.Run("FP10", func(t *testing.T) {
		c := plan{strategy: RemoveFailedPods}
		if a := c.policy(t).Profiles[0].args(RemoveFailedPods).(*RemoveFailedPodsArgs); *a.MinPodLifetimeSeconds != 3600 {
			t.Errorf("default minPodLifetimeSeconds = %d, want 3600", *a.MinPodLifetimeSeconds)
		}
	})
}

func TestTaintCases(t *testing.T) {
	const no = v1.TaintEffectNoSchedule
	a, tolA := taint("testTaint1", "test1", no), tolerates("testTaint1", "test1", no)
	pods := podList(pod("p1", "n1", tolA), pod("p2", "n1"), pod("p3", "n1", tolA))
	for _, c := range []testCase{
		{id: "NT1", plan: plan{pods: pods}, wantNames: []string{"p2"}},
		{id: "NT2", plan: plan{limits: &limits{1, 2, -1}, pods: podList(pod("p1", "n1"), pod("p2", "n1"), pod("p3", "n1", tolA))}, want: 1},
		{id: "NT4", plan: plan{evictor: &DefaultEvictorArgs{EvictLocalStoragePods: true},
			pods: podList(pod("c", "n1", crit), pod("d", "n1", daemon), pod("l", "n1", local), pod("m", "n1", mirror))}, wantNames: []string{"l"}},
		{id: "NT5", plan: plan{evictor: &DefaultEvictorArgs{NodeFit: true}, pods: podList(pod("p1", "n1")),
			nodes: cluster(node("n1", a), node("n2", taint("testTaint2", "test2", no)))}, want: 0},
		{id: "NT7", plan: plan{args: &NodeTaintsArgs{IncludePreferNoSchedule: true}, pods: podList(pod("p1", "n1")),
			nodes: cluster(node("n1", taint("testTaint1", "test1", v1.TaintEffectPreferNoSchedule)), node("n2"))}, want: 1},
		{id: "NT8", plan: plan{args: &NodeTaintsArgs{ExcludedTaints: []string{"testTaint1"}}, pods: podList(pod("p1", "n1"))}, want: 0},
		{id: "NT10", plan: plan{args: &NodeTaintsArgs{IncludedTaints: []string{"testTaint2=test2"}},
			pods: podList(pod("p1", "n1"), pod("p2", "n1", tolerates("x", "y", no)))}, want: 0},
		{id: "NT11", plan: plan{args: &NodeTaintsArgs{IncludedTaints: []string{"testTaint1=test1"}}, pods: pods}, want: 1},
		{id: "XLM10", plan: plan{pods: podList(pod("p1", "n1")), nodes: cluster(node("n1", a))}, want: 0,
			differs: "a violation needs another node that fits: the case has 1"},
		{id: "LM7", plan: plan{pods: podList(pod("p1", "n1"), pod("p2", "n1"))}, want: 2},
	} {
		c.strategy = NodeTaints
		if c.nodes == nil {
			c.nodes = cluster(node("n1", a), node("n2"))
		}
		if c.args == nil {
			c.args = &NodeTaintsArgs{}
		}
		c.test(t)
	}
}

func TestNodeAffinityCases(t *testing.T) {
	wants := affine(matchIn("kubernetes.io/desiredNode", "yes"), nil)
	labelled, plain := nodeLabel("kubernetes.io/desiredNode", "yes"), podList(pod("x", "plain"), pod("y", "plain"))
	for _, c := range []testCase{
		{id: "NA1", plan: plan{nodes: cluster(node("labelled", labelled)), pods: podList(pod("p", "labelled", wants), pod("x", "labelled"))}, want: 0},
		{id: "NA2", plan: plan{nodes: cluster(node("plain"), node("labelled", labelled)), pods: append(plain, pod("p", "plain", wants))},
			wantNames: []string{"p"}},
		{id: "NA4", plan: plan{nodes: cluster(node("plain"), node("labelled", labelled)), limits: &limits{-1, 0, -1},
			pods: append(plain, pod("p", "plain", wants))}, want: 0},
		{id: "NA5", plan: plan{nodes: cluster(node("plain"), node("labelled", labelled, cordoned)), evictor: &DefaultEvictorArgs{NodeFit: true},
			pods: append(plain, pod("p", "plain", wants))}, want: 0},
	} {
		c.strategy, c.args = NodeAffinity, &NodeAffinityArgs{NodeAffinityType: []string{RequiredAffinity}}
		c.test(t)
	}
}

func TestAntiAffinityCases(t *testing.T) {
	region, free := nodeLabel("region", "main-region"), node("free") // a violation needs another node
	anti := repels("foo", "bar", "region")
	both := func(p *v1.Pod) { label("foo", "bar")(p); anti(p) }
	pods := podList(pod("p1", "n1", both), pod("p2", "n1", label("foo", "bar")), pod("p3", "n1", both), pod("p4", "n1", both))
	for _, c := range []testCase{
		{id: "AA1", plan: plan{nodes: cluster(node("n1", region), free), pods: pods}, want: 3},
		{id: "AA2", plan: plan{nodes: cluster(node("n1", region), free), pods: pods, limits: &limits{1, -1, 3}}, want: 1},
		{id: "AA4", plan: plan{nodes: cluster(node("n1", region), free),
			pods: podList(pod("p1", "n1", anti), pod("x", "n1", label("foo", "bar"), crit, bare))}, wantNames: []string{"p1"}},
		{id: "AA5", plan: plan{nodes: cluster(node("n1", region), node("n5", region), free),
			pods: podList(pod("p1", "n1", anti), pod("p11", "n5", label("foo", "bar")))}, wantNames: []string{"p1"}},
		{id: "no topology key", plan: plan{nodes: cluster(node("n1"), free), pods: pods}, want: 0,
			differs: "the scheduler may put them there: 3 in the descheduler"},
	} {
		c.strategy, c.args = InterPodAntiAffinity, &AntiAffinityArgs{}
		c.test(t)
	}
}

func TestDuplicateCases(t *testing.T) {
	spread := func(counts ...int) (out []*v1.Pod) {
		for i, count := range counts {
			out = append(out, podsNamed(count, fmt.Sprintf("p%d-", i+1), fmt.Sprintf("n%d", i+1))...)
		}
		return out
	}
	three := cluster(node("n1"), node("n2"), node("n3"))
	twice := spread(5, 3, 1)
	for _, p := range twice {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{Kind: "ReplicaSet", Name: "other", UID: "other"})
	}
	nowhere := spread(5, 3, 1)
	for _, p := range nowhere {
		selects("no", "where")(p)
	}
	for _, c := range []testCase{
		{id: "DU1", plan: plan{nodes: two(), pods: spread(3, 0)}, want: 1},
		{id: "DU2", plan: plan{nodes: two(), pods: spread(3, 0), args: &RemoveDuplicatesArgs{ExcludeOwnerKinds: []string{"ReplicaSet"}}}, want: 0},
		{id: "DU4", plan: plan{nodes: two(), pods: podList(pod("a", "n1", images("foo")), pod("b", "n1", images("bar")))}, want: 0},
		{id: "DU5", plan: plan{nodes: three, pods: spread(5, 3, 1)}, want: 2},
		{id: "DU7", plan: plan{nodes: three, pods: spread(2, 0, 0)}, want: 1},
		{id: "DU8", plan: plan{nodes: three, pods: podList(pod("a", "n1", images("", "foo")), pod("b", "n1", images("", "bar")),
			pod("c", "n1", images("", "baz")), pod("d", "n1", images("", "foo")))}, want: 1},
		{id: "DU10", plan: plan{nodes: three, pods: nowhere}, want: 0},
		{id: "DU11", plan: plan{nodes: three, pods: twice}, want: 2, differs: "a pod of two owners counts once, not twice: the case has 4"},
	} {
		c.strategy = RemoveDuplicates
		if c.args == nil {
			c.args = &RemoveDuplicatesArgs{}
		}
		c.test(t)
	}
}

func big(name string, pods int64, edits ...func(*v1.Node)) *v1.Node {
	return sized(name, 4000, 3000, pods, edits...)
}

// loaded returns the pods of the first node in the tables of LowNodeUtilization.
func loaded(edits ...edit) []*v1.Pod {
	cpu := request(v1.ResourceCPU, 400)
	return all(podsNamed(5, "p", "n1", append([]edit{cpu}, edits...)...),
		podList(pod("d", "n1", cpu, daemon), pod("l", "n1", cpu, local, mirror), pod("c", "n1", cpu, crit)))
}

func TestLowCases(t *testing.T) {
	cpu := request(v1.ResourceCPU, 400)
	usual := func() *LowNodeUtilizationArgs {
		return &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 30, "pods": 30}, TargetThresholds: Thresholds{"cpu": 50, "pods": 50}}
	}
	with := func(edit func(*LowNodeUtilizationArgs)) *LowNodeUtilizationArgs { a := usual(); edit(a); return a }
	west := selects("datacenter", "west")
	lu5 := all(podsNamed(3, "p", "n1", cpu), podList(pod("p4", "n1", cpu, west), pod("p5", "n1", cpu, west), pod("d", "n1", cpu, daemon),
		pod("l", "n1", cpu, local), pod("c", "n1", cpu, crit)))
	east := cluster(big("n1", 9), big("n2", 10, nodeLabel("datacenter", "east")), big("n3", 10, cordoned))
	ext := func(p *v1.Pod) { request("ext", 1)(p) }
	one := pod("q", "n2", cpu)
	for _, c := range []testCase{
		{id: "LU1", plan: plan{pods: append(loaded(), one)}, want: 3, differs: "the scheduler would put the fourth back: it spreads pods of an owner"},
		{id: "LU2", plan: plan{pods: append(loaded(inSpace("namespace1")), one),
			args: with(func(a *LowNodeUtilizationArgs) { a.EvictableNamespaces = &Namespaces{Exclude: []string{"namespace1"}} })}, want: 0},
		{id: "LU4", plan: plan{pods: loaded(), nodes: cluster(big("n1", 9), big("n2", 10, cordoned))}, want: 0},
		{id: "LU5", plan: plan{pods: lu5, nodes: east}, want: 3},
		{id: "LU7", plan: plan{pods: podsNamed(8, "p", "n1", ext), nodes: cluster(big("n1", 10, has2("ext", 8)), big("n2", 10)),
			args: &LowNodeUtilizationArgs{Thresholds: Thresholds{"pods": 30, "ext": 30}, TargetThresholds: Thresholds{"pods": 50, "ext": 50}}}, want: 0},
		{id: "LU8", plan: plan{pods: append(loaded(), one), args: &LowNodeUtilizationArgs{UseDeviationThresholds: true,
			Thresholds: Thresholds{"cpu": 5, "pods": 5}, TargetThresholds: Thresholds{"cpu": 5, "pods": 5}}}, want: 2},
		{id: "LU10", plan: plan{pods: append(loaded(), one),
			args: with(func(a *LowNodeUtilizationArgs) { a.EvictionLimits = &EvictionLimits{Node: new(uint(2))} })}, want: 2},
		{id: "LU11", plan: plan{pods: lu5, nodes: east,
			args: with(func(a *LowNodeUtilizationArgs) { a.MetricsUtilization = &MetricsUtilization{Source: KubernetesMetrics} }),
			edit: func(_ *Policy, s *Snapshot) { setUsage(s, 801) }}, want: 2},
	} {
		c.strategy = LowNodeUtilization
		if c.nodes == nil {
			c.nodes = cluster(big("n1", 9), big("n2", 10), big("n3", 10, cordoned))
		}
		if c.args == nil {
			c.args = usual()
		}
		if c.evictor == nil {
			c.evictor = &DefaultEvictorArgs{NodeFit: true}
		}
		c.test(t)
	}
}

// setUsage sets the measured cpu usage of each pod.
func setUsage(s *Snapshot, cpu int64) {
	s.NodeUsage, s.PodUsage = map[string]v1.ResourceList{}, map[string]v1.ResourceList{}
	for _, n := range s.Nodes {
		s.NodeUsage[n.Name] = sized("", 0, 0, 0).Status.Capacity
	}
	for _, p := range s.Pods {
		s.PodUsage[p.Namespace+"/"+p.Name] = sized("", cpu, 0, 0).Status.Capacity
		total := s.NodeUsage[p.Spec.NodeName][v1.ResourceCPU]
		total.Add(s.PodUsage[p.Namespace+"/"+p.Name][v1.ResourceCPU])
		s.NodeUsage[p.Spec.NodeName][v1.ResourceCPU] = total
	}
}

// packs describes a scheduler that fills nodes.
func packs(p *Policy, _ *Snapshot) {
	p.SchedulerProfiles = []SchedulerProfile{{ScoringStrategy: mostAllocated, Weights: map[string]int64{"PodTopologySpread": 0}}}
}

func TestHighCases(t *testing.T) {
	cpu := request(v1.ResourceCPU, 400)
	for _, c := range []testCase{
		{id: "HU1", plan: plan{args: &HighNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 20, "pods": 20}},
			nodes: cluster(big("n1", 10), big("n2", 10), big("n3", 10)),
			pods:  all(podsNamed(3, "a", "n1", cpu), podsNamed(3, "b", "n2", cpu), podsNamed(3, "c", "n3", cpu))}, want: 0},
		{id: "HU2", plan: plan{nodes: cluster(big("n1", 10), big("n2", 10), big("n3", 10, cordoned)),
			pods: all(podList(pod("p1", "n1", cpu), pod("c", "n1", cpu, crit)), podsNamed(4, "q", "n2", cpu), podList(pod("p7", "n3", cpu)))},
			wantNames: []string{"p7", "p1"}},
		{id: "HU4", plan: plan{nodes: cluster(node("n1"), node("n2"), node("n3", cordoned)),
			pods: all(podList(pod("p1", "n1", cpu)), podsNamed(4, "q", "n2", cpu), podList(pod("p7", "n3", cpu)))}, want: 1},
		{id: "HU5", plan: plan{args: &HighNodeUtilizationArgs{Thresholds: Thresholds{"ext": 40}, EvictionModes: []string{OnlyThresholdingResources}},
			nodes: cluster(big("n1", 10, has2("ext", 10)), big("n2", 10, has2("ext", 10)), big("n3", 10, has2("ext", 10))),
			pods:  all(podsNamed(2, "a", "n1", request("ext", 3)), podsNamed(4, "b", "n2"))}, want: 0},
	} {
		c.strategy, c.evictor, c.edit = HighNodeUtilization, &DefaultEvictorArgs{NodeFit: true}, packs
		if c.args == nil {
			c.args = &HighNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 30, "pods": 30}}
		}
		c.test(t)
	}
}

// zones returns the nodes n1, n2, ... in the zones A, B, ...
func zones(count int) (out []*v1.Node) {
	for i := range count {
		out = append(out, sized(fmt.Sprintf("n%d", i+1), 2000, 3000, 100, nodeLabel("zone", string(rune('A'+i)))))
	}
	return out
}

func inZones(sizes []int, edits ...edit) (out []*v1.Pod) {
	for i, size := range sizes {
		out = append(out, podsNamed(size, fmt.Sprintf("p%d-", i+1), fmt.Sprintf("n%d", i+1), edits...)...)
	}
	return out
}

func TestSpreadCases(t *testing.T) {
	hard := spreads("zone", 1, v1.DoNotSchedule)
	no := v1.TaintEffectNoSchedule
	ts5 := podList(pod("a", "n1", hard, selects("zone", "A")), pod("b", "n1", hard, selects("zone", "A")),
		pod("c", "n1", hard, affine(matchIn("foo", "nobody"), nil)), pod("d", "n1", hard))
	ts11 := zones(2)
	taint("t", "v", no)(ts11[1])
	full := zones(3)
	full[0] = sized("n1", 250, 3000, 100, nodeLabel("zone", "A"))
	priorities := podList(pod("p100", "n1", hard, priority(100)), pod("p300", "n1", hard, priority(300)), pod("p200", "n1", hard, priority(200)))
	fit := func(is bool) *SpreadArgs { return &SpreadArgs{TopologyBalanceNodeFit: &is} }
	for _, c := range []testCase{
		{id: "TS1", plan: plan{pods: inZones([]int{2, 1}, hard)}, want: 0},
		{id: "TS2", plan: plan{pods: inZones([]int{3, 1}, hard)}, want: 1},
		{id: "TS4", plan: plan{pods: inZones([]int{4, 0}, hard)}, want: 2},
		{id: "TS5", plan: plan{pods: ts5, evictor: &DefaultEvictorArgs{NodeFit: true}}, wantNames: []string{"d"}},
		{id: "TS7", plan: plan{nodes: zones(4), pods: inZones([]int{0, 1, 3, 5}, hard)}, want: 3},
		{id: "TS8", plan: plan{pods: inZones([]int{2, 6}, spreads("zone", 2, v1.DoNotSchedule))}, want: 1},
		{id: "TS10", plan: plan{nodes: zones(3), pods: inZones([]int{5, 5, 5}, hard)}, want: 0},
		{id: "TS11", plan: plan{nodes: ts11, pods: inZones([]int{2, 0}, hard)}, want: 0},
		{id: "TS13", plan: plan{pods: inZones([]int{3, 1}, spreads("zone", 1, v1.ScheduleAnyway)),
			args: &SpreadArgs{Constraints: []v1.UnsatisfiableConstraintAction{v1.DoNotSchedule, v1.ScheduleAnyway}}}, want: 1},
		{id: "TS14", plan: plan{pods: inZones([]int{3, 1}, hard, bare)}, want: 0},
		{id: "TS16", plan: plan{pods: all(inZones([]int{2, 2}, hard), podsNamed(2, "t", "n1", hard, term))}, want: 0},
		{id: "TS17 true", plan: plan{nodes: full, pods: inZones([]int{2, 3, 4}, hard), args: fit(true), evictor: &DefaultEvictorArgs{NodeFit: true}},
			want: 0},
		{id: "TS17 false", plan: plan{nodes: full, pods: inZones([]int{2, 3, 4}, hard), args: fit(false)}, want: 1,
			differs: "without nodeFit, which sees that no node takes it: 0 with it"},
		{id: "XTS19", plan: plan{pods: all(inZones([]int{3, 0}, hard, bare), podsNamed(2, "q", "n2", hard))}, want: 0, differs: "protected pods count"},
		{id: "XTS20", plan: plan{pods: priorities}, wantNames: []string{"p100"}, differs: "the lowest priority goes first"},
	} {
		c.strategy = TopologySpreadConstraint
		if c.nodes == nil {
			c.nodes = zones(2)
		}
		if c.args == nil {
			c.args = &SpreadArgs{}
		}
		c.test(t)
	}
}
