package policyfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"jettison/cluster/deschedule"
)

// old is a policy of v1alpha1, as the last release that read it had it
// (sigs.k8s.io/descheduler/pkg/api/v1alpha1, 0.26).
type old struct {
	metav1.TypeMeta `json:",inline"`

	Strategies                     map[string]oldStrategy `json:"strategies"`
	NodeSelector                   *string                `json:"nodeSelector"`
	EvictFailedBarePods            *bool                  `json:"evictFailedBarePods"`
	EvictLocalStoragePods          *bool                  `json:"evictLocalStoragePods"`
	EvictDaemonSetPods             *bool                  `json:"evictDaemonSetPods"`
	EvictSystemCriticalPods        *bool                  `json:"evictSystemCriticalPods"`
	IgnorePVCPods                  *bool                  `json:"ignorePvcPods"`
	MaxNoOfPodsToEvictPerNode      *uint                  `json:"maxNoOfPodsToEvictPerNode"`
	MaxNoOfPodsToEvictPerNamespace *uint                  `json:"maxNoOfPodsToEvictPerNamespace"`
	MaxNoOfPodsToEvictTotal        *uint                  `json:"maxNoOfPodsToEvictTotal"`
}

type oldStrategy struct {
	Enabled bool       `json:"enabled"`
	Weight  *int       `json:"weight"`
	Params  *oldParams `json:"params"`
}

type oldParams struct {
	NodeResourceUtilizationThresholds *struct {
		UseDeviationThresholds bool                  `json:"useDeviationThresholds"`
		Thresholds             deschedule.Thresholds `json:"thresholds"`
		TargetThresholds       deschedule.Thresholds `json:"targetThresholds"`
		NumberOfNodes          int                   `json:"numberOfNodes"`
	} `json:"nodeResourceUtilizationThresholds"`
	NodeAffinityType          []string `json:"nodeAffinityType"`
	PodsHavingTooManyRestarts *struct {
		PodRestartThreshold     int32 `json:"podRestartThreshold"`
		IncludingInitContainers bool  `json:"includingInitContainers"`
	} `json:"podsHavingTooManyRestarts"`
	PodLifeTime *struct {
		MaxPodLifeTimeSeconds *uint    `json:"maxPodLifeTimeSeconds"`
		PodStatusPhases       []string `json:"podStatusPhases"`
		States                []string `json:"states"`
	} `json:"podLifeTime"`
	RemoveDuplicates *struct {
		ExcludeOwnerKinds []string `json:"excludeOwnerKinds"`
	} `json:"removeDuplicates"`
	FailedPods *struct {
		ExcludeOwnerKinds       []string `json:"excludeOwnerKinds"`
		MinPodLifetimeSeconds   *uint    `json:"minPodLifetimeSeconds"`
		Reasons                 []string `json:"reasons"`
		IncludingInitContainers bool     `json:"includingInitContainers"`
	} `json:"failedPods"`
	IncludeSoftConstraints     bool                   `json:"includeSoftConstraints"`
	Namespaces                 *deschedule.Namespaces `json:"namespaces"`
	ThresholdPriority          *int32                 `json:"thresholdPriority"`
	ThresholdPriorityClassName string                 `json:"thresholdPriorityClassName"`
	LabelSelector              *metav1.LabelSelector  `json:"labelSelector"`
	NodeFit                    bool                   `json:"nodeFit"`
	IncludePreferNoSchedule    bool                   `json:"includePreferNoSchedule"`
	ExcludedTaints             []string               `json:"excludedTaints"`
}

// Migrate turns a policy of v1alpha1 into one of v1alpha2, as YAML. The notes name what has no
// successor, one line each. What comes out is a policy that Decode takes, else it is an error.
func Migrate(text []byte, name string) (policy []byte, notes []string, err error) {
	root, err := document(text, name)
	if err != nil {
		return nil, nil, err
	}
	s := newChecked(name)
	if version, line := scalar(root, "apiVersion"); version != oldVersion {
		return nil, nil, s.fault(line, "apiVersion %q: want %s, which is what this turns into %s",
			version, oldVersion, deschedule.APIVersion)
	}
	s.Check(root, reflect.TypeFor[old](), nil)
	if faults := s.faults(); len(faults) > 0 {
		return nil, nil, errors.Join(faults...)
	}
	var from old
	if err := into(root, &from); err != nil {
		return nil, nil, s.fault(root.Line, "%v", err)
	}
	to, notes := from.migrate()
	made, err := json.Marshal(to)
	if err != nil {
		return nil, nil, err
	}
	if policy, err = yaml.JSONToYAML(made); err != nil {
		return nil, nil, err
	}
	if _, err := Decode(policy, name); err != nil {
		return nil, nil, fmt.Errorf("what it turns into is no valid policy: %w", err)
	}
	return policy, notes, nil
}

func (o *old) migrate() (*deschedule.Policy, []string) {
	to := &deschedule.Policy{
		TypeMeta: metav1.TypeMeta{APIVersion: deschedule.APIVersion,
			Kind: deschedule.Kind},
		NodeSelector:                   o.NodeSelector,
		MaxNoOfPodsToEvictPerNode:      o.MaxNoOfPodsToEvictPerNode,
		MaxNoOfPodsToEvictPerNamespace: o.MaxNoOfPodsToEvictPerNamespace,
		MaxNoOfPodsToEvictTotal:        o.MaxNoOfPodsToEvictTotal,
	}
	var notes []string
	profiles := map[string]int{} // by their evictor, as JSON
	for _, name := range slices.Sorted(maps.Keys(o.Strategies)) {
		strategy := o.Strategies[name]
		args := deschedule.NewArgs(name)
		switch {
		case !strategy.Enabled:
			notes = append(notes, fmt.Sprintf("strategies.%s: it is not enabled, and left out", name))
			continue
		case args == nil || name == deschedule.DefaultEvictor:
			notes = append(notes, fmt.Sprintf("strategies.%s: there is no such strategy any more", name))
			continue
		}
		if strategy.Weight != nil && *strategy.Weight != 0 {
			notes = append(notes, fmt.Sprintf(
				"strategies.%s.weight: it never had a meaning, and has no successor", name))
		}
		params := strategy.Params
		if params == nil {
			params = &oldParams{}
		}
		left := params.args(args)
		for _, field := range left {
			notes = append(notes, fmt.Sprintf("strategies.%s.params.%s: %s has no such argument", name,
				field, name))
		}
		evictor := o.evictor(params)
		key, _ := json.Marshal(evictor) // plain fields
		at, ok := profiles[string(key)]
		if !ok {
			at = len(to.Profiles)
			profiles[string(key)] = at
			to.Profiles = append(to.Profiles, deschedule.Profile{
				Name:         fmt.Sprintf("profile-%d", at+1),
				PluginConfig: []deschedule.PluginConfig{{Name: deschedule.DefaultEvictor, Args: evictor}},
			})
		}
		to.Profiles[at].Enable(name, args)
	}
	return to, notes
}

func (o *old) evictor(p *oldParams) *deschedule.DefaultEvictorArgs {
	is := func(b *bool) bool { return b != nil && *b }
	out := &deschedule.DefaultEvictorArgs{NodeFit: p.NodeFit}
	for _, off := range []struct {
		is   bool
		name string
	}{
		{is(o.EvictLocalStoragePods), deschedule.PodsWithLocalStorage},
		{is(o.EvictDaemonSetPods), deschedule.DaemonSetPods},
		{is(o.EvictSystemCriticalPods), deschedule.SystemCriticalPods},
		{is(o.EvictFailedBarePods), deschedule.FailedBarePods},
	} {
		if off.is {
			out.PodProtections.DefaultDisabled = append(out.PodProtections.DefaultDisabled, off.name)
		}
	}
	if is(o.IgnorePVCPods) {
		out.PodProtections.ExtraEnabled = []string{deschedule.PodsWithPVC}
	}
	if p.ThresholdPriority != nil || p.ThresholdPriorityClassName != "" {
		out.PriorityThreshold = &deschedule.PriorityThreshold{Value: p.ThresholdPriority,
			Name: p.ThresholdPriorityClassName}
	}
	return out
}

// args fills the arguments of a strategy, and names the parameters that are set and are not its
// own.
func (p *oldParams) args(to any) (left []string) {
	rest := *p
	rest.NodeFit, rest.ThresholdPriority, rest.ThresholdPriorityClassName = false, nil, ""
	selected := deschedule.Selected{Namespaces: p.Namespaces, LabelSelector: p.LabelSelector}
	switch a := to.(type) {
	case *deschedule.RemoveDuplicatesArgs:
		a.Namespaces, rest.Namespaces = p.Namespaces, nil
		if d := p.RemoveDuplicates; d != nil {
			a.ExcludeOwnerKinds, rest.RemoveDuplicates = d.ExcludeOwnerKinds, nil
		}
		return rest.set()
	case *deschedule.LowNodeUtilizationArgs:
		if u := p.NodeResourceUtilizationThresholds; u != nil {
			a.UseDeviationThresholds, a.Thresholds, a.TargetThresholds, a.NumberOfNodes =
				u.UseDeviationThresholds, u.Thresholds, u.TargetThresholds, u.NumberOfNodes
			rest.NodeResourceUtilizationThresholds = nil
		}
		a.EvictableNamespaces, rest.Namespaces = p.Namespaces, nil
		return rest.set()
	case *deschedule.HighNodeUtilizationArgs:
		if u := p.NodeResourceUtilizationThresholds; u != nil {
			a.Thresholds, a.NumberOfNodes = u.Thresholds, u.NumberOfNodes
			rest.NodeResourceUtilizationThresholds = nil
		}
		a.EvictableNamespaces, rest.Namespaces = p.Namespaces, nil
		return rest.set()
	case *deschedule.NodeAffinityArgs:
		a.Selected, a.NodeAffinityType, rest.NodeAffinityType = selected, p.NodeAffinityType, nil
	case *deschedule.NodeTaintsArgs:
		a.Selected, a.IncludePreferNoSchedule, a.ExcludedTaints = selected, p.IncludePreferNoSchedule,
			p.ExcludedTaints
		rest.IncludePreferNoSchedule, rest.ExcludedTaints = false, nil
	case *deschedule.AntiAffinityArgs:
		a.Selected = selected
	case *deschedule.SpreadArgs:
		a.Selected, rest.IncludeSoftConstraints = selected, false
		if p.IncludeSoftConstraints {
			a.Constraints = []v1.UnsatisfiableConstraintAction{v1.DoNotSchedule, v1.ScheduleAnyway}
		}
	case *deschedule.TooManyRestartsArgs:
		a.Selected = selected
		if t := p.PodsHavingTooManyRestarts; t != nil {
			a.PodRestartThreshold, a.IncludingInitContainers = t.PodRestartThreshold,
				t.IncludingInitContainers
			rest.PodsHavingTooManyRestarts = nil
		}
	case *deschedule.PodLifeTimeArgs:
		a.Selected = selected
		if t := p.PodLifeTime; t != nil {
			a.MaxPodLifeTimeSeconds, a.States = t.MaxPodLifeTimeSeconds,
				append(t.States, t.PodStatusPhases...)
			rest.PodLifeTime = nil
		}
	case *deschedule.RemoveFailedPodsArgs:
		a.Selected = selected
		if f := p.FailedPods; f != nil {
			a.ExcludeOwnerKinds, a.MinPodLifetimeSeconds, a.Reasons = f.ExcludeOwnerKinds,
				f.MinPodLifetimeSeconds, f.Reasons
			a.IncludingInitContainers, rest.FailedPods = f.IncludingInitContainers, nil
		}
	}
	rest.Namespaces, rest.LabelSelector = nil, nil
	return rest.set()
}

// set names the parameters that are set.
func (p *oldParams) set() (out []string) {
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			out = append(out, v.Type().Field(i).Tag.Get("json"))
		}
	}
	return out
}
