package deschedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// podLifeTime evicts pods that match all configured arguments, the oldest of all nodes first.
func podLifeTime(r *run, args any) {
	a := args.(*PodLifeTimeArgs)
	selects := a.filter()
	var old []*model.Pod
	reasons := map[*model.Pod]string{}
	for _, n := range r.nodes {
		for _, p := range n.Pods {
			if !selects(p) {
				continue
			}
			if why := a.matchReason(p, r.now); why != "" && r.evictable(p) {
				old = append(old, p)
				reasons[p] = why
			}
		}
	}
	slices.SortFunc(old, func(a, b *model.Pod) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return byEvictionOrder(a, b)
	})
	for _, p := range old {
		if !r.preEvictable(p) { // after earlier evictions
			continue
		}
		if a.matchesAnyAge() && r.replacementMatches(p) { // with a limit, a later plan would evict the replacement
			r.skip(p, evictionLoop, r.strategy)
			continue
		}
		if r.evict(&proposal{pod: p, reason: reasons[p]}) == totalLimitReached {
			return
		}
	}
}

// matchesAnyAge reports whether a replacement matches the arguments as soon as it runs.
func (a *PodLifeTimeArgs) matchesAnyAge() bool {
	return a.MaxPodLifeTimeSeconds == nil && len(a.Conditions) == 0 && len(a.ExitCodes) == 0 &&
		slices.Contains(a.States, string(v1.PodRunning))
}

// replacementMatches reports whether a pod's replacement may be evicted as soon as it runs.
func (r *run) replacementMatches(p *model.Pod) bool {
	if len(p.OwnerReferences) == 0 || p.Ended || r.evictor.args.MinPodAge != nil {
		return false
	}
	to := r.cluster.Place(p, r.schedulers.of(p.Pod))
	if to == nil || !r.selected[to] || !r.evictor.args.NodeFit {
		return to != nil && r.selected[to]
	}
	q := r.cluster.FitCheck(p)
	return slices.ContainsFunc(r.evictor.nodes, func(n *model.Node) bool {
		return n != to && q.FailureReason(n) == ""
	})
}

// matchReason returns why a pod matches the arguments; empty: it does not. Ages are in whole
// seconds; a pod without creation time never matches an age.
func (a *PodLifeTimeArgs) matchReason(p *model.Pod, now time.Time) string {
	var why []string
	if most := a.MaxPodLifeTimeSeconds; most != nil {
		age := now.Sub(p.CreationTimestamp.Time)
		if age < 0 || p.CreationTimestamp.IsZero() || uint(age.Seconds()) <= *most {
			return ""
		}
		why = append(why, fmt.Sprintf("age %v > maxPodLifeTimeSeconds %v", age.Truncate(time.Second),
			time.Duration(*most)*time.Second))
	}
	if len(a.States) > 0 {
		state := a.matchingState(p)
		if state == "" {
			return ""
		}
		why = append(why, "state "+state)
	}
	if a.OwnerKinds != nil {
		if include := a.OwnerKinds.Include; len(include) > 0 && !hasOwnerKind(p, include) {
			return ""
		}
		if hasOwnerKind(p, a.OwnerKinds.Exclude) {
			return ""
		}
	}
	if len(a.Conditions) > 0 {
		c := a.matchingCondition(p, now)
		if c == nil {
			return ""
		}
		why = append(why, fmt.Sprintf("condition %s=%s %s", c.Type, c.Status, c.Reason))
	}
	if len(a.ExitCodes) > 0 {
		t := terminatedWith(statuses(p, a.IncludingInitContainers, false), a.ExitCodes)
		if t == nil {
			return ""
		}
		why = append(why, fmt.Sprintf("exit code %d", t.ExitCode))
	}
	return strings.TrimSpace(strings.Join(why, ", "))
}

// matchingState returns the first of the states that a pod is in; empty: none.
func (a *PodLifeTimeArgs) matchingState(p *model.Pod) string {
	if slices.Contains(a.States, string(p.Status.Phase)) {
		return string(p.Status.Phase)
	}
	if slices.Contains(a.States, p.Status.Reason) {
		return p.Status.Reason
	}
	containers := statuses(p, a.IncludingInitContainers, a.IncludingEphemeralContainers)
	if state := waitingReason(containers, a.States); state != "" {
		return state
	}
	return terminatedReason(containers, a.States)
}

// matchingCondition returns the first condition that one of the filters matches; nil: none. A
// condition without transition time never matches a minimum time.
func (a *PodLifeTimeArgs) matchingCondition(p *model.Pod, now time.Time) *v1.PodCondition {
	for i := range a.Conditions {
		f := &a.Conditions[i]
		for j := range p.Status.Conditions {
			c := &p.Status.Conditions[j]
			if f.Type != "" && f.Type != string(c.Type) || f.Status != "" && f.Status != string(c.Status) ||
				f.Reason != "" && f.Reason != c.Reason {
				continue
			}
			if least := f.MinTimeSinceLastTransitionSeconds; least != nil {
				since := now.Sub(c.LastTransitionTime.Time)
				if c.LastTransitionTime.IsZero() || since < 0 || uint(since.Seconds()) < *least {
					continue
				}
			}
			return c
		}
	}
	return nil
}
