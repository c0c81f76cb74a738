package deschedule

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// SchedulerProfile describes a profile of the scheduler whose scores differ from the default ones:
// the fields of KubeSchedulerConfiguration that decide where replacement pods run.
type SchedulerProfile struct {
	// SchedulerName is the spec.schedulerName of pods; empty: default-scheduler.
	SchedulerName string `json:"schedulerName,omitempty"`
	// ScoringStrategy of NodeResourcesFit: LeastAllocated (default) or MostAllocated.
	ScoringStrategy string `json:"scoringStrategy,omitempty"`
	// Weights of score plugins by name; 0 disables a plugin, absent: the default weight.
	Weights map[string]int64 `json:"weights,omitempty"`
}

// Values of scoringStrategy.
const (
	leastAllocated = "LeastAllocated"
	mostAllocated  = "MostAllocated"
)

// maxWeight is the highest weight that kube-scheduler accepts for a plugin, and more.
const maxWeight = 1 << 31

func (p *SchedulerProfile) name() string {
	if p.SchedulerName == "" {
		return v1.DefaultSchedulerName
	}
	return p.SchedulerName
}

// weightsOf returns the weights of a profile by the name of their plugin.
func weightsOf(p *model.SchedulerProfile) map[string]*int64 {
	return map[string]*int64{
		"TaintToleration": &p.TaintToleration, "NodeAffinity": &p.NodeAffinity,
		"PodTopologySpread": &p.PodTopologySpread, "InterPodAffinity": &p.InterPodAffinity,
		"NodeResourcesFit":                &p.NodeResourcesFit,
		"NodeResourcesBalancedAllocation": &p.NodeResourcesBalancedAllocation,
	}
}

func (p *SchedulerProfile) check() (out []error) {
	if s := p.ScoringStrategy; s != "" && s != leastAllocated && s != mostAllocated {
		out = append(out, fmt.Errorf("scoringStrategy %q: want %s or %s", s, leastAllocated, mostAllocated))
	}
	known := weightsOf(&model.SchedulerProfile{})
	for _, name := range slices.Sorted(maps.Keys(p.Weights)) {
		switch weight := p.Weights[name]; {
		case known[name] == nil:
			out = append(out, fmt.Errorf("weights: plugin %q is unknown: want one of %v", name,
				slices.Sorted(maps.Keys(known))))
		case weight < 0 || weight > maxWeight:
			out = append(out, fmt.Errorf("weights: %s %d: want 0 to %d", name, weight, maxWeight))
		}
	}
	return out
}

// schedulers are the profiles of the scheduler by schedulerName.
type schedulers map[string]*model.SchedulerProfile

func (p *Policy) schedulers() schedulers {
	out := schedulers{v1.DefaultSchedulerName: model.DefaultProfile()}
	for i := range p.SchedulerProfiles {
		in, made := &p.SchedulerProfiles[i], model.DefaultProfile()
		if in.ScoringStrategy == mostAllocated {
			made.Packing = model.MostAllocated
		}
		for name, weight := range weightsOf(made) {
			if value, ok := in.Weights[name]; ok {
				*weight = value
			}
		}
		out[in.name()] = made
	}
	return out
}

// of returns the profile that places a pod; the default one if it is unknown.
func (s schedulers) of(p *v1.Pod) *model.SchedulerProfile {
	if profile := s[p.Spec.SchedulerName]; profile != nil {
		return profile
	}
	return s[v1.DefaultSchedulerName]
}

// unknown returns a warning for each scheduler of running pods that the policy does not describe.
func (s schedulers) unknown(pods []*v1.Pod) (out []string) {
	count := map[string]int{}
	for _, p := range pods {
		if name := p.Spec.SchedulerName; name != "" && s[name] == nil && p.Spec.NodeName != "" {
			count[name]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(count)) {
		out = append(out, fmt.Sprintf("scheduler %s of %d pods is not in schedulerProfiles: "+
			"the plan assumes default scores", name, count[name]))
	}
	return out
}

// best returns the best of the nodes that are an improvement, nil if no node is.
func (w *proposal) best(nodes []*model.Node) (best *model.Node) {
	for _, n := range nodes {
		if w.improves(n) && (best == nil || w.rank != nil && w.rank(n) < w.rank(best)) {
			best = n
		}
	}
	return best
}

// moveTarget returns the node for the replacement of a pod that moves by preference or utilization.
// Otherwise it returns nil and the reason why the pod stays.
//
// The replacement is scheduled while the pod is still being deleted (ReplicaSet) or when it is gone
// (StatefulSet). In both cases one of the nodes with the highest score must be an improvement, and
// none may be the present one. A pod that violates a hard constraint cannot return, so only the
// second case matters.
func (r *run) moveTarget(w *proposal) (to *model.Node, reason string) {
	pod := w.pod
	if why := r.movedWithoutEffect(pod); why != "" && !w.hard {
		return nil, why
	}
	gone := r.cluster.FitCheck(pod)
	if !gone.FitsAny(w.improves) {
		if other, why := r.cluster.FindOther(pod, r.cluster.Nodes); other == nil {
			return nil, "replacement fits on no other node: " + why
		}
		return nil, "no feasible node would be better: " + w.noGain
	}
	profile, checks := r.schedulers.of(pod.Pod), []*model.FitCheck{gone}
	if !w.hard {
		checks = []*model.FitCheck{gone.Successor(), gone}
	}
	for _, check := range checks {
		top := check.TopNodes(profile)
		better := w.best(top)
		switch {
		case len(top) == 0: // until the pod is gone
			continue
		case slices.Contains(top, pod.Node):
			return nil, fmt.Sprintf("scheduler would likely place the replacement on %s again%s",
				pod.Node.Name, w.hint)
		case better == nil:
			return nil, fmt.Sprintf("scheduler would likely place the replacement on %s, no better: %s%s",
				top[0].Name, w.noGain, w.hint)
		case to == nil:
			to = better
		}
	}
	return to, ""
}
