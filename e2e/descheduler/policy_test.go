package descheduler

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/descheduler/pkg/api"

	"jettison/cluster/deschedule"
	"jettison/internal/cluster/descheduler/policyfile"
)

// strategies has all ten strategies.
var strategies = []string{
	deschedule.PodLifeTime, deschedule.TooManyRestarts, deschedule.RemoveFailedPods, deschedule.NodeTaints, deschedule.NodeAffinity,
	deschedule.InterPodAntiAffinity, deschedule.RemoveDuplicates, deschedule.LowNodeUtilization, deschedule.HighNodeUtilization,
	deschedule.TopologySpreadConstraint,
}

// balances has the strategies that are balance plugins.
var balances = map[string]bool{
	deschedule.RemoveDuplicates: true, deschedule.LowNodeUtilization: true, deschedule.HighNodeUtilization: true,
	deschedule.TopologySpreadConstraint: true,
}

// chooser makes a random policy.
type chooser struct{ *rand.Rand }

func (c *chooser) one(in int) bool { return c.IntN(in) == 0 }

func (c *chooser) namespaces() *deschedule.Namespaces {
	switch c.IntN(8) {
	case 0:
		return &deschedule.Namespaces{Include: []string{"default"}}
	case 1:
		return &deschedule.Namespaces{Exclude: []string{"other"}}
	}
	return nil
}

func (c *chooser) selected() (s deschedule.Selected) {
	s.Namespaces = c.namespaces()
	if c.one(8) {
		s.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "front"}}
	}
	return s
}

// args returns random arguments of a strategy.
func (c *chooser) args(strategy string) any {
	switch strategy {
	case deschedule.PodLifeTime:
		return c.lifeTime()
	case deschedule.TooManyRestarts:
		a := &deschedule.TooManyRestartsArgs{Selected: c.selected(), PodRestartThreshold: int32(40 + c.IntN(120)),
			IncludingInitContainers: c.one(3)}
		if c.one(4) {
			a.States = [][]string{{"Running"}, {"CrashLoopBackOff"}}[c.IntN(2)]
		}
		return a
	case deschedule.RemoveFailedPods:
		return c.failed()
	case deschedule.NodeTaints:
		a := &deschedule.NodeTaintsArgs{Selected: c.selected(), IncludePreferNoSchedule: c.one(3)}
		switch c.IntN(6) {
		case 0:
			a.ExcludedTaints = []string{"t=v"}
		case 1:
			a.IncludedTaints = []string{"u"}
		}
		return a
	case deschedule.NodeAffinity:
		kinds := [][]string{{deschedule.RequiredAffinity}, {deschedule.PreferredAffinity},
			{deschedule.RequiredAffinity, deschedule.PreferredAffinity}}
		return &deschedule.NodeAffinityArgs{Selected: c.selected(), NodeAffinityType: kinds[c.IntN(3)]}
	case deschedule.InterPodAntiAffinity:
		return &deschedule.AntiAffinityArgs{Selected: c.selected()}
	case deschedule.RemoveDuplicates:
		a := &deschedule.RemoveDuplicatesArgs{Namespaces: c.namespaces()}
		if c.one(4) {
			a.ExcludeOwnerKinds = []string{"Job"}
		}
		return a
	case deschedule.LowNodeUtilization:
		return c.low()
	case deschedule.HighNodeUtilization:
		a := &deschedule.HighNodeUtilizationArgs{Thresholds: c.thresholds(15, 30), NumberOfNodes: c.IntN(6) / 5}
		if c.one(3) {
			a.EvictionModes = []string{deschedule.OnlyThresholdingResources}
		}
		if c.one(6) {
			a.EvictableNamespaces = &deschedule.Namespaces{Exclude: []string{"other"}}
		}
		return a
	}
	a := &deschedule.SpreadArgs{Selected: c.selected()}
	if c.one(2) {
		a.Constraints = []v1.UnsatisfiableConstraintAction{v1.DoNotSchedule, v1.ScheduleAnyway}
	}
	if c.one(4) {
		a.TopologyBalanceNodeFit = new(false)
	}
	return a
}

func (c *chooser) lifeTime() any {
	a := &deschedule.PodLifeTimeArgs{Selected: c.selected(), IncludingInitContainers: c.one(4)}
	if !c.one(4) {
		a.MaxPodLifeTimeSeconds = new(uint(c.IntN(48)*3600 + 2400))
	}
	switch c.IntN(8) {
	case 0:
		a.States = []string{"Pending", "CrashLoopBackOff"}
	case 1:
		a.States = []string{"Failed", "Evicted"}
	case 2:
		a.ExitCodes = []int32{137}
	case 3:
		a.Conditions = []deschedule.PodConditionFilter{{Type: "Ready", Status: "False",
			MinTimeSinceLastTransitionSeconds: new(uint(10*3600 + 2400))}}
	case 4:
		a.OwnerKinds = &deschedule.OwnerKinds{Exclude: []string{"Job"}}
	case 5:
		a.OwnerKinds = &deschedule.OwnerKinds{Include: []string{"ReplicaSet"}}
	}
	if a.MaxPodLifeTimeSeconds == nil && a.States == nil && a.Conditions == nil && a.ExitCodes == nil {
		a.States = []string{"Running"}
	}
	return a
}

func (c *chooser) failed() any {
	a := &deschedule.RemoveFailedPodsArgs{Selected: c.selected(), IncludingInitContainers: c.one(4),
		MinPodLifetimeSeconds: new(uint(c.IntN(12)*3600 + 2400))}
	switch c.IntN(5) {
	case 0:
		a.Reasons = []string{"OOMKilled", "Evicted"}
	case 1:
		a.ExitCodes = []int32{1}
	case 2:
		a.ExcludeOwnerKinds = []string{"Job"}
	}
	return a
}

func (c *chooser) thresholds(from, to int) deschedule.Thresholds {
	out := deschedule.Thresholds{}
	for _, name := range [][]v1.ResourceName{{v1.ResourceCPU}, {v1.ResourceCPU, v1.ResourcePods}, {v1.ResourceMemory}, {v1.ResourcePods},
		{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods}, {gpu, v1.ResourcePods}}[c.IntN(6)] {
		out[name] = float64(from + c.IntN(to))
	}
	return out
}

func (c *chooser) low() any {
	a := &deschedule.LowNodeUtilizationArgs{Thresholds: c.thresholds(10, 30), TargetThresholds: deschedule.Thresholds{},
		UseDeviationThresholds: c.one(4), NumberOfNodes: c.IntN(6) / 5}
	names := slices.Sorted(maps.Keys(a.Thresholds)) // the same seed must give the same policy
	for _, name := range names {
		a.TargetThresholds[name] = a.Thresholds[name] + float64(c.IntN(40))
	}
	if a.UseDeviationThresholds {
		for _, name := range names {
			a.Thresholds[name], a.TargetThresholds[name] = float64(5+c.IntN(10)), float64(5+c.IntN(10))
		}
	}
	if c.one(6) {
		a.EvictableNamespaces = &deschedule.Namespaces{Exclude: []string{"other"}}
	}
	if c.one(6) {
		a.EvictionLimits = &deschedule.EvictionLimits{Node: new(uint(1 + c.IntN(3)))}
	}
	return a
}

func (c *chooser) evictor() *deschedule.DefaultEvictorArgs {
	a := &deschedule.DefaultEvictorArgs{NodeFit: c.one(2)}
	switch c.IntN(16) {
	case 0:
		a.MinReplicas = uint(2 + c.IntN(3))
	case 1:
		a.MinPodAge = &metav1.Duration{Duration: time.Duration(c.IntN(24))*time.Hour + 40*time.Minute}
	case 2:
		a.PriorityThreshold = &deschedule.PriorityThreshold{Value: new(int32(100+c.IntN(200)) / 10 * 10)}
	case 3:
		a.PodProtections.DefaultDisabled = []string{[]string{deschedule.PodsWithLocalStorage, deschedule.DaemonSetPods,
			deschedule.FailedBarePods, deschedule.SystemCriticalPods}[c.IntN(4)]}
	case 4:
		a.PodProtections.ExtraEnabled = []string{[]string{deschedule.PodsWithPVC, deschedule.PodsWithoutPDB,
			deschedule.PodsWithResourceClaims}[c.IntN(3)]}
	case 5:
		a.PodProtections.ExtraEnabled = []string{deschedule.PodsWithPVC}
		a.PodProtections.Config = &deschedule.PodProtectionsConfig{PodsWithPVC: &deschedule.PodsWithPVCConfig{
			ProtectedStorageClasses: []deschedule.ProtectedStorageClass{{Name: "fast"}}}}
	case 6:
		a.NoEvictionPolicy = deschedule.MandatoryNoEviction
	case 7:
		a.NamespaceLabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "t0"}}
	case 8:
		a.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "back"}}
	case 9:
		a.EvictLocalStoragePods, a.IgnorePvcPods = true, true
	case 10:
		a.NodeSelector = zone + "=a"
	}
	return a
}

// randomPolicy returns a policy with one strategy, or several in one or two profiles. It has limits
// where the order of evictions is defined.
func randomPolicy(r *rand.Rand, alone string) *deschedule.Policy {
	c := &chooser{r}
	p := &deschedule.Policy{TypeMeta: metav1.TypeMeta{APIVersion: deschedule.APIVersion, Kind: deschedule.Kind}}
	if c.one(12) {
		p.NodeSelector = new(disk + "=ssd")
	}
	limited, profiles := true, 1
	if alone == "" {
		profiles += c.IntN(2)
	}
	for i := range profiles {
		profile := deschedule.Profile{Name: string(rune('p' + i)), PluginConfig: []deschedule.PluginConfig{{Name: deschedule.DefaultEvictor,
			Args: c.evictor()}}}
		names := []string{alone}
		if alone == "" {
			names = nil
			for _, k := range c.Perm(len(strategies))[:2+c.IntN(3)] {
				names = append(names, strategies[k])
			}
		}
		for _, name := range names {
			profile.Enable(name, c.args(name))
			limited = limited && name != deschedule.RemoveDuplicates && name != deschedule.TopologySpreadConstraint
		}
		p.Profiles = append(p.Profiles, profile)
	}
	if limited && c.one(4) {
		switch c.IntN(3) {
		case 0:
			p.MaxNoOfPodsToEvictTotal = new(uint(1 + c.IntN(5)))
		case 1:
			p.MaxNoOfPodsToEvictPerNode = new(uint(1 + c.IntN(3)))
		case 2:
			p.MaxNoOfPodsToEvictPerNamespace = new(uint(1 + c.IntN(4)))
		}
	}
	return p
}

// read reads a policy with both programs.
func read(t testing.TB, p *deschedule.Policy) (*deschedule.Policy, *api.DeschedulerPolicy) {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := policyfile.Decode(text, "policy")
	if err != nil {
		t.Fatalf("read the policy with both programs: %v\n%s", err, text)
	}
	for i := range ours.Profiles {
		if slices.Contains(ours.Profiles[i].Plugins.Balance.Enabled, deschedule.HighNodeUtilization) {
			ours.SchedulerProfiles = []deschedule.SchedulerProfile{{ScoringStrategy: "MostAllocated"}}
		}
	}
	return ours, readPolicy(t, text)
}
