package policyfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"jettison/cluster/deschedule"
)

// policyV1alpha1 is a v1alpha1 policy with the fields of the last release that read it
// (sigs.k8s.io/descheduler/pkg/api/v1alpha1, 0.26).
type policyV1alpha1 struct {
	metav1.TypeMeta `json:",inline"`

	Strategies                     map[string]strategyV1alpha1 `json:"strategies"`
	NodeSelector                   *string                     `json:"nodeSelector"`
	EvictFailedBarePods            *bool                       `json:"evictFailedBarePods"`
	EvictLocalStoragePods          *bool                       `json:"evictLocalStoragePods"`
	EvictDaemonSetPods             *bool                       `json:"evictDaemonSetPods"`
	EvictSystemCriticalPods        *bool                       `json:"evictSystemCriticalPods"`
	IgnorePVCPods                  *bool                       `json:"ignorePvcPods"`
	MaxNoOfPodsToEvictPerNode      *uint                       `json:"maxNoOfPodsToEvictPerNode"`
	MaxNoOfPodsToEvictPerNamespace *uint                       `json:"maxNoOfPodsToEvictPerNamespace"`
	MaxNoOfPodsToEvictTotal        *uint                       `json:"maxNoOfPodsToEvictTotal"`
}

type strategyV1alpha1 struct {
	Enabled bool            `json:"enabled"`
	Weight  *int            `json:"weight"`
	Params  *paramsV1alpha1 `json:"params"`
}

type paramsV1alpha1 struct {
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

// Migrate converts a v1alpha1 policy to v1alpha2, as YAML. The notes list settings without
// equivalent, one line each. The result is valid for Decode. A policy with an error lacks the
// strategies that the error names: they cannot be converted.
func Migrate(text []byte, name string) (policy []byte, notes []string, err error) {
	root, err := rootNode(text, name)
	if err != nil {
		return nil, nil, err
	}
	s := newChecker(name)
	if version, line := scalar(root, "apiVersion"); version != versionV1alpha1 {
		return nil, nil, s.wrongVersion(root, line, "apiVersion %q: want %s to convert to %s",
			version, versionV1alpha1, deschedule.APIVersion)
	}
	s.Check(root, reflect.TypeFor[policyV1alpha1](), nil)
	if faults := s.faults(); len(faults) > 0 {
		return nil, nil, errors.Join(faults...)
	}
	var from policyV1alpha1
	if err := decodeInto(root, &from); err != nil {
		return nil, nil, s.fault(root.Line, "%v", err)
	}
	if err := (&deschedule.Policy{NodeSelector: from.NodeSelector}).Complete(); err != nil {
		return nil, nil, s.withLines(err)
	}
	to, notes, rejected := from.migrate()
	made, err := json.Marshal(to)
	if err != nil {
		return nil, nil, err
	}
	if policy, err = yaml.JSONToYAML(made); err != nil {
		return nil, nil, err
	}
	if _, err := Decode(policy, name+" (converted)"); err != nil {
		return nil, nil, err
	}
	var faults []error
	for _, strategy := range slices.Sorted(maps.Keys(rejected)) {
		line := s.Lines.Nearest([]string{"strategies", strategy, "params"}, ".")
		for _, err := range errorsOf(rejected[strategy]) {
			what := strings.TrimPrefix(err.Error(), unnamedProfile)
			faults = append(faults, s.fault(line, "strategies.%s: not converted: %s", strategy,
				strings.TrimPrefix(what, strategy+": ")))
		}
	}
	return policy, notes, errors.Join(faults...)
}

// unnamedProfile is the start of errors about a profile without a name.
const unnamedProfile = `profile "": `

// check returns why a strategy cannot be converted; nil: it can.
func (o *policyV1alpha1) check(name string, params *paramsV1alpha1) error {
	args := deschedule.NewArgs(name) // Complete sets defaults, which the converted policy leaves out
	params.fillArgs(args)
	one := deschedule.Profile{PluginConfig: []deschedule.PluginConfig{{Name: deschedule.DefaultEvictor,
		Args: o.evictor(params)}}}
	one.Enable(name, args)
	return (&deschedule.Policy{Profiles: []deschedule.Profile{one}}).Complete()
}

// migrate returns the converted policy, notes, and the errors of strategies that it leaves out.
func (o *policyV1alpha1) migrate() (to *deschedule.Policy, notes []string,
	rejected map[string]error) {
	rejected = map[string]error{}
	to = &deschedule.Policy{
		TypeMeta: metav1.TypeMeta{APIVersion: deschedule.APIVersion,
			Kind: deschedule.Kind},
		NodeSelector:                   o.NodeSelector,
		MaxNoOfPodsToEvictPerNode:      o.MaxNoOfPodsToEvictPerNode,
		MaxNoOfPodsToEvictPerNamespace: o.MaxNoOfPodsToEvictPerNamespace,
		MaxNoOfPodsToEvictTotal:        o.MaxNoOfPodsToEvictTotal,
	}
	profiles := map[string]int{} // index, by the evictor as JSON
	for _, name := range slices.Sorted(maps.Keys(o.Strategies)) {
		strategy := o.Strategies[name]
		args := deschedule.NewArgs(name)
		switch {
		case !strategy.Enabled:
			notes = append(notes, fmt.Sprintf("strategies.%s: not enabled", name))
			continue
		case args == nil || name == deschedule.DefaultEvictor:
			notes = append(notes, fmt.Sprintf("strategies.%s: strategy no longer exists", name))
			continue
		}
		if strategy.Weight != nil && *strategy.Weight != 0 {
			notes = append(notes, fmt.Sprintf(
				"strategies.%s.weight: field never had an effect", name))
		}
		params := strategy.Params
		if params == nil {
			params = &paramsV1alpha1{}
		}
		if err := o.check(name, params); err != nil {
			rejected[name] = err
			continue
		}
		unsupported := params.fillArgs(args)
		for _, field := range unsupported {
			notes = append(notes, fmt.Sprintf("strategies.%s.params.%s: no argument of %s", name, field, name))
		}
		evictor := o.evictor(params)
		key, _ := json.Marshal(evictor) // never fails
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
	return to, notes, rejected
}

func (o *policyV1alpha1) evictor(p *paramsV1alpha1) *deschedule.DefaultEvictorArgs {
	isSet := func(b *bool) bool { return b != nil && *b }
	out := &deschedule.DefaultEvictorArgs{NodeFit: p.NodeFit}
	for _, off := range []struct {
		isSet bool
		name  string
	}{
		{isSet(o.EvictLocalStoragePods), deschedule.PodsWithLocalStorage},
		{isSet(o.EvictDaemonSetPods), deschedule.DaemonSetPods},
		{isSet(o.EvictSystemCriticalPods), deschedule.SystemCriticalPods},
		{isSet(o.EvictFailedBarePods), deschedule.FailedBarePods},
	} {
		if off.isSet {
			out.PodProtections.DefaultDisabled = append(out.PodProtections.DefaultDisabled, off.name)
		}
	}
	if isSet(o.IgnorePVCPods) {
		out.PodProtections.ExtraEnabled = []string{deschedule.PodsWithPVC}
	}
	if p.ThresholdPriority != nil || p.ThresholdPriorityClassName != "" {
		out.PriorityThreshold = &deschedule.PriorityThreshold{Value: p.ThresholdPriority,
			Name: p.ThresholdPriorityClassName}
	}
	return out
}

// fillArgs sets the arguments of a strategy. It returns the parameters that are set but
// unsupported by the strategy.
func (p *paramsV1alpha1) fillArgs(to any) (unsupported []string) {
	rest := *p
	rest.NodeFit, rest.ThresholdPriority, rest.ThresholdPriorityClassName = false, nil, ""
	selected := deschedule.Selected{Namespaces: p.Namespaces, LabelSelector: p.LabelSelector}
	switch a := to.(type) {
	case *deschedule.RemoveDuplicatesArgs:
		a.Namespaces, rest.Namespaces = p.Namespaces, nil
		if d := p.RemoveDuplicates; d != nil {
			a.ExcludeOwnerKinds, rest.RemoveDuplicates = d.ExcludeOwnerKinds, nil
		}
		return rest.setFields()
	case *deschedule.LowNodeUtilizationArgs:
		if u := p.NodeResourceUtilizationThresholds; u != nil {
			a.UseDeviationThresholds, a.Thresholds, a.TargetThresholds, a.NumberOfNodes =
				u.UseDeviationThresholds, u.Thresholds, u.TargetThresholds, u.NumberOfNodes
			rest.NodeResourceUtilizationThresholds = nil
		}
		a.EvictableNamespaces, rest.Namespaces = p.Namespaces, nil
		return rest.setFields()
	case *deschedule.HighNodeUtilizationArgs:
		if u := p.NodeResourceUtilizationThresholds; u != nil {
			a.Thresholds, a.NumberOfNodes = u.Thresholds, u.NumberOfNodes
			rest.NodeResourceUtilizationThresholds = nil
		}
		a.EvictableNamespaces, rest.Namespaces = p.Namespaces, nil
		return rest.setFields()
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
	return rest.setFields()
}

// setFields returns the names of the parameters that are set.
func (p *paramsV1alpha1) setFields() (out []string) {
	v := reflect.ValueOf(p).Elem()
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			out = append(out, v.Type().Field(i).Tag.Get("json"))
		}
	}
	return out
}
