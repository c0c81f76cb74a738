package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Budgets are the disruption budgets of a cluster, and what is left of each. The rules are those of
// the eviction subresource (k8s.io/kubernetes/pkg/registry/core/pod/storage/eviction.go, 1.36).
type Budgets struct {
	bySpace map[string][]*budget
	spent   []*budget // one for each disruption, in order
}

type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
	left     int32
	stale    bool // the status is of an older spec
}

// NewBudgets reads budgets. One without a status, as in a file that was written by hand, allows
// what its spec and the pods of the cluster say.
func NewBudgets(c *Cluster, in []*policyv1.PodDisruptionBudget) *Budgets {
	b := &Budgets{bySpace: map[string][]*budget{}}
	for _, p := range in {
		made := &budget{PodDisruptionBudget: p, selector: selectorOf(p.Spec.Selector),
			left: p.Status.DisruptionsAllowed}
		if made.unwritten() {
			made.left = made.reckon(c)
		} else {
			made.stale = p.Status.ObservedGeneration < p.Generation
		}
		b.bySpace[p.Namespace] = append(b.bySpace[p.Namespace], made)
	}
	for _, list := range b.bySpace {
		slices.SortFunc(list, func(x, y *budget) int { return cmp.Compare(x.Name, y.Name) })
	}
	return b
}

// unwritten: no controller has written the status.
func (b *budget) unwritten() bool {
	s := &b.Status
	return s.ObservedGeneration == 0 && s.DisruptionsAllowed == 0 && s.CurrentHealthy == 0 &&
		s.DesiredHealthy == 0 &&
		s.ExpectedPods == 0 && len(s.Conditions) == 0
}

// reckon is what the spec allows of the pods that are there.
func (b *budget) reckon(c *Cluster) int32 {
	expected, healthy := 0, 0
	for _, p := range c.pods[b.Namespace] {
		if p.Ended || p.DeletionTimestamp != nil || !b.selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		expected++
		if healthyPod(p.Pod) {
			healthy++
		}
	}
	desired := 0
	switch {
	case b.Spec.MaxUnavailable != nil:
		n, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, expected, true)
		if err != nil {
			return 0
		}
		desired = max(expected-n, 0)
	case b.Spec.MinAvailable != nil:
		n, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, expected, true)
		if err != nil {
			return 0
		}
		desired = n
	}
	b.PodDisruptionBudget = b.DeepCopy()
	b.Status.CurrentHealthy, b.Status.DesiredHealthy, b.Status.ExpectedPods = int32(healthy),
		int32(desired), int32(expected)
	return int32(max(healthy-desired, 0))
}

// healthyPod is one that is Ready. Of a pod without any condition nothing says that it is not,
// unless it has not started.
func healthyPod(p *v1.Pod) bool {
	if len(p.Status.Conditions) == 0 {
		return p.Status.Phase != v1.PodPending
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

func (b *Budgets) of(p *v1.Pod) (out []*budget) {
	for _, one := range b.bySpace[p.Namespace] {
		if one.selector.Matches(labels.Set(p.Labels)) {
			out = append(out, one)
		}
	}
	return out
}

// Cover reports whether any budget is about a pod.
func (b *Budgets) Cover(p *v1.Pod) bool { return len(b.of(p)) > 0 }

// Spend takes a pod's eviction off its budget, or says what refuses it.
func (b *Budgets) Spend(p *v1.Pod) (refused string) {
	if p.Status.Phase == v1.PodPending || p.Status.Phase == v1.PodSucceeded ||
		p.Status.Phase == v1.PodFailed || p.DeletionTimestamp != nil {
		return ""
	}
	budgets := b.of(p)
	if len(budgets) == 0 {
		return ""
	}
	if len(budgets) > 1 {
		return "several disruption budgets are about it, which the eviction API refuses: " +
			namesOf(budgets)
	}
	one := budgets[0]
	if !healthyPod(p) && one.letsUnhealthyGo() {
		return ""
	}
	switch {
	case one.stale:
		return fmt.Sprintf("disruption budget %s: its status is not of its spec yet", one.Name)
	case one.left <= 0:
		return fmt.Sprintf("disruption budget %s allows no more disruptions: %d of %d pods healthy, %d wanted",
			one.Name, one.Status.CurrentHealthy, one.Status.ExpectedPods, one.Status.DesiredHealthy)
	}
	one.left--
	b.spent = append(b.spent, one)
	return ""
}

// mostNames is how many budgets a reason names: whoever makes them may make any number.
const mostNames = 10

func namesOf(budgets []*budget) string {
	var names []string
	for _, one := range budgets[:min(len(budgets), mostNames)] {
		names = append(names, one.Name)
	}
	text := strings.Join(names, ", ")
	if more := len(budgets) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Spent is how many disruptions were taken off budgets.
func (b *Budgets) Spent() int { return len(b.spent) }

// Undo gives back all but so many.
func (b *Budgets) Undo(spent int) {
	for _, one := range b.spent[spent:] {
		one.left++
	}
	b.spent = b.spent[:spent]
}

func (b *budget) letsUnhealthyGo() bool {
	if b.Spec.UnhealthyPodEvictionPolicy != nil &&
		*b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// Left are the budgets with what is left of them in their status, as a controller would write it
// before any pod is healthy again.
func (b *Budgets) Left() (out []*policyv1.PodDisruptionBudget) {
	for _, list := range b.bySpace {
		for _, one := range list {
			left := one.DeepCopy()
			left.Status.DisruptionsAllowed = one.left
			// it has been written
			left.Status.ObservedGeneration = max(left.Status.ObservedGeneration, left.Generation, 1)
			if one.stale {
				left.Status.ObservedGeneration = one.Status.ObservedGeneration
			}
			out = append(out, left)
		}
	}
	slices.SortFunc(out, func(x, y *policyv1.PodDisruptionBudget) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return out
}
