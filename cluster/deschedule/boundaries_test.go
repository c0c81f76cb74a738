package deschedule

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/model"
)

// The rules of the evictor apply from their limits on, with a reason for each pod that stays.
func TestEvictorLimits(t *testing.T) {
	threshold := &DefaultEvictorArgs{PriorityThreshold: &PriorityThreshold{Value: new(int32(800))}}
	age := &DefaultEvictorArgs{MinPodAge: &metav1.Duration{Duration: time.Hour}}
	app := &DefaultEvictorArgs{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}
	claimed := &DefaultEvictorArgs{PodProtections: PodProtections{ExtraEnabled: []string{PodsWithPVC, PodsWithResourceClaims}}}
	source := func(value string) edit {
		return func(p *v1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, sourceAnnotation, value) }
	}
	volume := func(v v1.VolumeSource) edit {
		return func(p *v1.Pod) { p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "data", VolumeSource: v}) }
	}
	none := &DefaultEvictorArgs{}
	for name, c := range map[string]struct {
		args *DefaultEvictorArgs
		edit edit
		want string // part of the reason; empty: evictable
	}{
		"priority of the threshold":        {threshold, priority(800), "priority 800 is not below priorityThreshold 800"},
		"priority below the threshold":     {threshold, priority(799), ""},
		"priority of system pods":          {none, priority(criticalPriority), "is system-critical"},
		"priority below that":              {none, priority(criticalPriority - 1), ""},
		"as old as minPodAge":              {age, started(time.Hour), ""},
		"younger than minPodAge":           {age, started(time.Hour - 1), "less than minPodAge"},
		"not started":                      {age, func(*v1.Pod) {}, "has not started"},
		"labels of the selector":           {app, label("app", "a"), ""},
		"other labels":                     {app, label("app", "b"), "labels do not match"},
		"static pod":                       {none, source("file"), "static pod"},
		"pod from the API":                 {none, source("api"), ""},
		"host path":                        {none, volume(v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}), "local storage"},
		"empty directory":                  {none, volume(v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}), "local storage"},
		"config map":                       {claimed, volume(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}), ""},
		"claim without the protection":     {none, claims("foo"), ""},
		"claim with the protection":        {claimed, claims("foo"), "uses PersistentVolumeClaim foo"},
		"no claim with the protection":     {claimed, func(*v1.Pod) {}, ""},
		"one replica without minReplicas":  {&DefaultEvictorArgs{MinReplicas: 1}, func(*v1.Pod) {}, ""},
		"one replica with minReplicas 2":   {&DefaultEvictorArgs{MinReplicas: 2}, func(*v1.Pod) {}, "has 1 active pods"},
		"ended replica with minReplicas 2": {&DefaultEvictorArgs{MinReplicas: 2}, phase(v1.PodFailed), ""},
	} {
		why, _ := filterResults(t, c.args, two(), podList(pod("p", "n1", c.edit)))
		if (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: filter = %q, want %q", name, why, c.want)
		}
	}
}

// A pod whose eviction continues in the background, or was rejected, is not proposed again.
func TestPendingAndRejectedPodsStay(t *testing.T) {
	c := plan{strategy: PodLifeTime, args: &PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(600))}, nodes: two(),
		pods: podList(pod("pending", "n1"), pod("rejected", "n1"), pod("other", "n1")), edit: func(_ *Policy, s *Snapshot) {
			s.Pending = map[types.UID]bool{"pending": true}
			s.Rejected = map[types.UID]string{"rejected": "a webhook rejected it"}
		}}
	r := c.run(t)
	if got := names(r); len(got) != 1 || got[0] != "other" || skipReason(r, "rejected") != "a webhook rejected it" ||
		!strings.Contains(skipReason(r, "pending"), "already in progress") {
		t.Errorf("evictions = %v, skipped %v, want only the other pod", got, r.Skipped)
	}
}

// Ages count in whole seconds: a pod as old as maxPodLifeTimeSeconds stays. All fields of a condition
// filter must match.
func TestLifeTimeLimits(t *testing.T) {
	most := &PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(600))}
	ready := func(age time.Duration) edit {
		return func(p *v1.Pod) {
			c := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, Reason: "Stuck"}
			if age >= 0 {
				c.LastTransitionTime = metav1.NewTime(t0.Add(-age))
			}
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}, c}
		}
	}
	filter := func(f PodConditionFilter) *PodLifeTimeArgs {
		return &PodLifeTimeArgs{Conditions: []PodConditionFilter{f}}
	}
	minute := &PodConditionFilter{Type: "Ready", MinTimeSinceLastTransitionSeconds: new(uint(60))}
	kinds := &PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(600)), OwnerKinds: &OwnerKinds{Include: []string{"ReplicaSet"}}}
	for name, c := range map[string]struct {
		args *PodLifeTimeArgs
		edit edit
		want bool
	}{
		"as old as the limit":          {most, aged(600 * time.Second), false},
		"almost a second older":        {most, aged(600*time.Second + 999*time.Millisecond), false},
		"a second older":               {most, aged(601 * time.Second), true},
		"created in the future":        {most, aged(-1000 * time.Second), false},
		"without creation time":        {most, func(p *v1.Pod) { p.CreationTimestamp = metav1.Time{} }, false},
		"limit 0, created now":         {&PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(0))}, aged(0), false},
		"owner of an included kind":    {kinds, func(*v1.Pod) {}, true},
		"owner of another kind":        {kinds, daemon, false},
		"all fields of a condition":    {filter(PodConditionFilter{Type: "Ready", Status: "False", Reason: "Stuck"}), ready(0), true},
		"status alone":                 {filter(PodConditionFilter{Status: "False"}), ready(0), true},
		"reason alone":                 {filter(PodConditionFilter{Reason: "Stuck"}), ready(0), true},
		"another type":                 {filter(PodConditionFilter{Type: "Initialized", Status: "False"}), ready(0), false},
		"another status":               {filter(PodConditionFilter{Type: "Ready", Status: "True"}), ready(0), false},
		"another reason":               {filter(PodConditionFilter{Type: "Ready", Reason: "Other"}), ready(0), false},
		"transition at the limit":      {filter(*minute), ready(60 * time.Second), true},
		"transition after the limit":   {filter(*minute), ready(59 * time.Second), false},
		"transition in the future":     {filter(*minute), ready(-2 * time.Hour), false},
		"no transition time":           {filter(*minute), ready(-1), false},
		"exit code of no container":    {&PodLifeTimeArgs{ExitCodes: []int32{1}}, state(false, waits("x")), false},
		"exit code of one container":   {&PodLifeTimeArgs{ExitCodes: []int32{1}}, state(false, endedWith("Error", 1)), true},
		"condition that the pod lacks": {filter(PodConditionFilter{Type: "Ready"}), func(*v1.Pod) {}, false},
	} {
		p := pod("p", "n1", c.edit)
		if why := c.args.matchReason(&model.Pod{Pod: p}, t0); (why != "") != c.want {
			t.Errorf("%s: matchReason = %q, want a match: %t", name, why, c.want)
		}
	}
}

// A failed pod matches from minPodLifetimeSeconds on.
func TestFailedLimits(t *testing.T) {
	undated := func(p *v1.Pod) { p.CreationTimestamp = metav1.Time{} }
	for name, c := range map[string]struct {
		least uint
		codes []int32
		edit  edit
		want  bool
	}{
		"as old as the limit":      {600, nil, aged(600 * time.Second), true},
		"younger":                  {600, nil, aged(600*time.Second - 1), false},
		"undated with a limit":     {600, nil, undated, false},
		"undated without a limit":  {0, nil, undated, true},
		"created in the future":    {0, nil, aged(-time.Hour), true},
		"exit code":                {0, []int32{2}, state(false, endedWith("Error", 2)), true},
		"no terminated container":  {0, []int32{0}, state(false, waits("x")), false},
		"another exit code":        {0, []int32{2}, state(false, endedWith("Error", 1)), false},
		"no reason, none required": {0, nil, statusReason("Evicted"), true},
	} {
		a := &RemoveFailedPodsArgs{MinPodLifetimeSeconds: &c.least, ExitCodes: c.codes}
		if why := a.matchReason(&model.Pod{Pod: pod("p", "n1", phase(v1.PodFailed), c.edit)}, t0); (why != "") != c.want {
			t.Errorf("%s: matchReason = %q, want a match: %t", name, why, c.want)
		}
	}
}

// Without a class in the status, the QoS class follows from requests and limits of all containers.
func TestQoSClassOfSpec(t *testing.T) {
	list := func(amounts ...string) v1.ResourceList {
		out := v1.ResourceList{}
		for i, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			if i < len(amounts) && amounts[i] != "" {
				out[name] = resource.MustParse(amounts[i])
			}
		}
		return out
	}
	has := func(requests, limits v1.ResourceList) v1.Container {
		return v1.Container{Resources: v1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	full := has(list("1", "1Gi"), list("1", "1Gi"))
	for name, c := range map[string]struct {
		containers, init []v1.Container
		want             int
	}{
		"nothing":               {[]v1.Container{has(nil, nil)}, nil, 0},
		"zero requests":         {[]v1.Container{has(list("0", "0"), list("0", "0"))}, nil, 0},
		"request":               {[]v1.Container{has(list("1"), nil)}, nil, 1},
		"limit of one resource": {[]v1.Container{has(nil, list("1"))}, nil, 1},
		"equal":                 {[]v1.Container{full}, nil, 2},
		"equal in two":          {[]v1.Container{full, full}, nil, 2},
		"less than the limit":   {[]v1.Container{has(list("1", "1Gi"), list("2", "1Gi"))}, nil, 1},
		"one resource equal":    {[]v1.Container{has(list("1"), list("1"))}, nil, 1},
		"limits alone":          {[]v1.Container{has(nil, list("1", "1Gi"))}, nil, 1},
		"limits and a request":  {[]v1.Container{has(list("1"), list("1", "1Gi"))}, nil, 1},
		"one container without": {[]v1.Container{full, has(nil, nil)}, nil, 1},
		"init container":        {[]v1.Container{full}, []v1.Container{has(list("1"), nil)}, 1},
	} {
		p := pod("p", "n1")
		p.Spec.Containers, p.Spec.InitContainers = c.containers, c.init
		if got := qosClass(p); got != c.want {
			t.Errorf("%s: class %d, want %d", name, got, c.want)
		}
	}
}

// Of pods that are equal otherwise, the youngest is evicted first, then the first by name.
func TestYoungestIsEvictedFirst(t *testing.T) {
	c := plan{strategy: NodeTaints, args: &NodeTaintsArgs{}, nodes: cluster(node("n1", taint("t", "v", v1.TaintEffectNoSchedule)), node("n2")),
		pods: podList(pod("b", "n1", aged(time.Hour)), pod("c", "n1", aged(time.Minute)), pod("a", "n1", aged(time.Hour)))}
	if got := strings.Join(names(c.run(t)), " "); got != "c a b" {
		t.Errorf("evictions = %s, want c a b", got)
	}
}

// Load that an agent reported counts for eleven minutes on both sides of now, and from the instant of
// the last eviction on.
func TestAgentLoadLimits(t *testing.T) {
	for name, c := range map[string]struct {
		at, evicted time.Duration // before now
		want        bool
	}{
		"as old as allowed": {AgentLoadAge, time.Hour, true}, "older": {AgentLoadAge + 1, time.Hour, false},
		"as far in the future": {-AgentLoadAge, time.Hour, true}, "further": {-AgentLoadAge - 1, time.Hour, false},
		"at the eviction": {time.Minute, time.Minute, true}, "before the eviction": {time.Minute + 1, time.Minute, false},
	} {
		p := &planner{now: t0, input: &Snapshot{EvictedFrom: map[string]time.Time{"n": t0.Add(-c.evicted)}, Agents: map[string]AgentLoad{
			"n": {At: t0.Add(-c.at), Percent: map[v1.ResourceName]float64{AgentMemorySome: 5}}}}}
		if value, known := p.agentValue("n", AgentMemorySome); known != c.want || known && value != 500 {
			t.Errorf("%s: value %d, known %t, want known %t", name, value, known, c.want)
		}
	}
}

// Each reason to evict no pod by utilization holds at its limit.
func TestIdleReasons(t *testing.T) {
	low, high := &LowNodeUtilizationArgs{NumberOfNodes: 2}, &HighNodeUtilizationArgs{NumberOfNodes: 2}
	for _, c := range []struct {
		under, others, nodes int
		low, high            string
	}{
		{0, 3, 5, "no schedulable node is under", "no node is under"},
		{2, 3, 5, "2 nodes are under thresholds, numberOfNodes requires more than 2", "2 nodes are under thresholds, numberOfNodes requires more than 2"},
		{3, 2, 5, "", ""},
		{5, 0, 5, "all nodes are under", "all nodes are under"},
		{4, 0, 5, "no node is over", "no other node is schedulable"},
	} {
		for name, got := range map[string][2]string{"low": {low.idleReason(c.under, c.others, c.nodes), c.low},
			"high": {high.idleReason(c.under, c.others, c.nodes), c.high}} {
			if (got[0] == "") != (got[1] == "") || !strings.HasPrefix(got[0], got[1]) {
				t.Errorf("%s, %d of %d nodes under thresholds, %d others: reason %q, want %q", name, c.under, c.nodes, c.others, got[0], got[1])
			}
		}
	}
}

// Namespaces that are only excluded include all others.
func TestExcludedNamespaces(t *testing.T) {
	for name, c := range map[string]struct {
		in   *Namespaces
		want bool
	}{
		"nil": {nil, true}, "empty": {&Namespaces{}, true}, "included": {&Namespaces{Include: []string{"a"}}, true},
		"others included": {&Namespaces{Include: []string{"b"}}, false}, "excluded": {&Namespaces{Exclude: []string{"a"}}, false},
		"others excluded": {&Namespaces{Exclude: []string{"b"}}, true},
	} {
		if got := c.in.match("a"); got != c.want {
			t.Errorf("%s: match = %t, want %t", name, got, c.want)
		}
	}
}

// Each fault of a policy is named, and values at the limits are none.
func TestFaultsOfPolicies(t *testing.T) {
	enable := func(name string, args any) func(*Policy) {
		return func(p *Policy) { p.Profiles[0].Enable(name, args) }
	}
	provider := func(all ...MetricsProvider) func(*Policy) { return func(p *Policy) { p.MetricsProviders = all } }
	prometheus := func(url string, secret *SecretReference) MetricsProvider {
		out := MetricsProvider{Source: PrometheusMetrics, Prometheus: &Prometheus{URL: url}}
		if secret != nil {
			out.Prometheus.AuthToken = &AuthToken{SecretReference: secret}
		}
		return out
	}
	low := func(below, above float64) *LowNodeUtilizationArgs {
		return &LowNodeUtilizationArgs{Thresholds: Thresholds{"cpu": below}, TargetThresholds: Thresholds{"cpu": above}}
	}
	weight := func(value int64) func(*Policy) {
		return func(p *Policy) {
			p.SchedulerProfiles = []SchedulerProfile{{Weights: map[string]int64{"NodeAffinity": value}}}
		}
	}
	for name, c := range map[string]struct {
		edit func(*Policy)
		want string // part of the error; empty: valid
	}{
		"node selector":           {func(p *Policy) { p.NodeSelector = new("a=b") }, ""},
		"invalid node selector":   {func(p *Policy) { p.NodeSelector = new("a==b==c") }, "nodeSelector"},
		"no grace period":         {func(p *Policy) { p.GracePeriodSeconds = new(int64(0)) }, ""},
		"negative grace period":   {func(p *Policy) { p.GracePeriodSeconds = new(int64(-1)) }, "gracePeriodSeconds -1"},
		"no pause":                {func(p *Policy) { p.OwnerPause = &metav1.Duration{} }, ""},
		"negative pause":          {func(p *Policy) { p.OwnerPause = &metav1.Duration{Duration: -1} }, "ownerPause"},
		"weight 0":                {weight(0), ""},
		"largest weight":          {weight(maxWeight), ""},
		"negative weight":         {weight(-1), "NodeAffinity -1"},
		"too large weight":        {weight(maxWeight + 1), "want 0 to"},
		"two providers":           {provider(MetricsProvider{Source: KubernetesMetrics}, prometheus("https://p", nil)), ""},
		"a provider twice":        {provider(MetricsProvider{Source: KubernetesMetrics}, MetricsProvider{Source: KubernetesMetrics}), "configured twice"},
		"unknown provider":        {provider(MetricsProvider{Source: "Other"}), `source "Other"`},
		"no Prometheus":           {provider(MetricsProvider{Source: PrometheusMetrics}), "url is required"},
		"no URL":                  {provider(prometheus("", nil)), "url is required"},
		"invalid URL":             {provider(prometheus("http://a b", nil)), "prometheus: url:"},
		"secret":                  {provider(prometheus("https://p", &SecretReference{Namespace: "a", Name: "b"})), ""},
		"secret without name":     {provider(prometheus("https://p", &SecretReference{Namespace: "a"})), "namespace and name"},
		"secret without space":    {provider(prometheus("https://p", &SecretReference{Name: "a"})), "namespace and name"},
		"equal thresholds":        {enable(LowNodeUtilization, low(50, 50)), ""},
		"reversed thresholds":     {enable(LowNodeUtilization, low(51, 50)), "greater than in targetThresholds"},
		"thresholds 0 and 100":    {enable(LowNodeUtilization, low(0, 100)), ""},
		"negative threshold":      {enable(LowNodeUtilization, low(-1, 100)), "want a percentage"},
		"threshold above 100":     {enable(LowNodeUtilization, low(0, 101)), "want a percentage"},
		"no thresholds":           {enable(HighNodeUtilization, &HighNodeUtilizationArgs{}), "at least one resource"},
		"no limit of life":        {enable(PodLifeTime, &PodLifeTimeArgs{}), "is required"},
		"life by condition":       {enable(PodLifeTime, &PodLifeTimeArgs{Conditions: []PodConditionFilter{{Type: "Ready"}}}), ""},
		"life by exit code":       {enable(PodLifeTime, &PodLifeTimeArgs{ExitCodes: []int32{1}}), ""},
		"life by empty condition": {enable(PodLifeTime, &PodLifeTimeArgs{Conditions: []PodConditionFilter{{}}}), "conditions[0]"},
		"kinds included": {enable(PodLifeTime, &PodLifeTimeArgs{States: []string{"Running"}, OwnerKinds: &OwnerKinds{Include: []string{"Job"}}}),
			""},
		"kinds in and out": {enable(PodLifeTime, &PodLifeTimeArgs{States: []string{"Running"},
			OwnerKinds: &OwnerKinds{Include: []string{"Job"}, Exclude: []string{"Job"}}}), "ownerKinds"},
		"namespaces included": {enable(InterPodAntiAffinity, &AntiAffinityArgs{Selected: Selected{Namespaces: &Namespaces{Include: []string{"a"}}}}), ""},
		"namespaces excluded": {enable(InterPodAntiAffinity, &AntiAffinityArgs{Selected: Selected{Namespaces: &Namespaces{Exclude: []string{"a"}}}}), ""},
		"both": {enable(InterPodAntiAffinity, &AntiAffinityArgs{Selected: Selected{Namespaces: &Namespaces{Include: []string{"a"}, Exclude: []string{"b"}}}}),
			"only one of include and exclude"},
		"invalid selector": {enable(InterPodAntiAffinity, &AntiAffinityArgs{Selected: Selected{LabelSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Other"}}}}}), "labelSelector"},
		"evictable namespaces included": {enable(HighNodeUtilization, &HighNodeUtilizationArgs{Thresholds: Thresholds{"cpu": 1},
			EvictableNamespaces: &Namespaces{Include: []string{"a"}}}), "only exclude can be set"},
		"unknown plugin":      {enable("Other", nil), `unknown plugin "Other"`},
		"plugin of OpenShift": {enable("kubevirtmigrationaware", nil), "only in OpenShift"},
	} {
		p := &Policy{Profiles: []Profile{{Name: "p"}}}
		c.edit(p)
		err := p.Complete()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
