package deschedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// podLifeTime evicts pods that are too old, or in a state for too long: the oldest first, over all
// nodes.
func podLifeTime(r *run, args any) {
	a := args.(*PodLifeTimeArgs)
	wanted := a.filter()
	var old []*model.Pod
	reasons := map[*model.Pod]string{}
	for _, n := range r.nodes {
		for _, p := range n.Pods {
			if !wanted(p) {
				continue
			}
			if why := a.why(p, r.now); why != "" && r.may(p) && r.fits(p) {
				old = append(old, p)
				reasons[p] = why
			}
		}
	}
	slices.SortFunc(old, func(a, b *model.Pod) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return firstToGo(a, b)
	})
	for _, p := range old {
		if a.anyAge() && r.returns(p) { // a limit that the others reach would hide it
			r.skip(p, forEver, r.strategy)
			continue
		}
		if r.evict(&wish{pod: p, reason: reasons[p]}) == full {
			return
		}
	}
}

// anyAge reports whether a pod matches as soon as it runs, if its owner's others do.
func (a *PodLifeTimeArgs) anyAge() bool {
	return a.MaxPodLifeTimeSeconds == nil && len(a.Conditions) == 0 && len(a.ExitCodes) == 0 &&
		slices.Contains(a.States, string(v1.PodRunning))
}

// returns reports whether a pod's successor is one that may be evicted as soon as it runs.
func (r *run) returns(p *model.Pod) bool {
	if len(p.OwnerReferences) == 0 || p.Ended || r.evictor.args.MinPodAge != nil {
		return false
	}
	to := r.cluster.Place(p, r.packing, nil)
	if to == nil || !r.looked[to] || !r.evictor.args.NodeFit {
		return to != nil && r.looked[to]
	}
	q := r.cluster.Ask(p)
	return slices.ContainsFunc(r.evictor.nodes, func(n *model.Node) bool {
		return n != to && q.Refuses(n) == ""
	})
}

// why says what of a pod matches; empty: something does not. Ages are in whole seconds; without a
// creation time a pod has none.
func (a *PodLifeTimeArgs) why(p *model.Pod, now time.Time) string {
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
		state := a.state(p)
		if state == "" {
			return ""
		}
		why = append(why, "state "+state)
	}
	if a.OwnerKinds != nil {
		if include := a.OwnerKinds.Include; len(include) > 0 && !ownerKind(p, include) {
			return ""
		}
		if ownerKind(p, a.OwnerKinds.Exclude) {
			return ""
		}
	}
	if len(a.Conditions) > 0 {
		c := a.condition(p, now)
		if c == nil {
			return ""
		}
		why = append(why, fmt.Sprintf("condition %s=%s %s", c.Type, c.Status, c.Reason))
	}
	if len(a.ExitCodes) > 0 {
		t := exited(statuses(p, a.IncludingInitContainers, false), a.ExitCodes)
		if t == nil {
			return ""
		}
		why = append(why, fmt.Sprintf("exit code %d", t.ExitCode))
	}
	return strings.TrimSpace(strings.Join(why, ", "))
}

// state is the first of the states that a pod is in; empty: none.
func (a *PodLifeTimeArgs) state(p *model.Pod) string {
	if slices.Contains(a.States, string(p.Status.Phase)) {
		return string(p.Status.Phase)
	}
	if slices.Contains(a.States, p.Status.Reason) {
		return p.Status.Reason
	}
	containers := statuses(p, a.IncludingInitContainers, a.IncludingEphemeralContainers)
	if state := waiting(containers, a.States); state != "" {
		return state
	}
	return ended(containers, a.States)
}

// condition is the first of a pod that one of the filters matches; nil: none. One without a time
// has lasted for no known time.
func (a *PodLifeTimeArgs) condition(p *model.Pod, now time.Time) *v1.PodCondition {
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
