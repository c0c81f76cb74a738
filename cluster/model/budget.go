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

// Budgets are the disruption budgets of a cluster and the disruptions they still allow. The rules
// are those of the eviction subresource
// (k8s.io/kubernetes/pkg/registry/core/pod/storage/eviction.go, 1.37).
type Budgets struct {
	byNamespace map[string][]*budget
	// one entry for each disruption, in order
	spent []*budget
}

type budget struct {
	*policyv1.PodDisruptionBudget
	selector labels.Selector
	allowed  int32
	stale    bool // the status belongs to an older spec
}

// NewBudgets reads budgets. For a budget without status, as in a hand-written file, the allowed
// disruptions are computed from its spec and the pods of the cluster.
func NewBudgets(c *Cluster, in []*policyv1.PodDisruptionBudget) *Budgets {
	b := &Budgets{byNamespace: map[string][]*budget{}}
	for _, p := range in {
		made := &budget{PodDisruptionBudget: p, selector: selectorOf(p.Spec.Selector),
			allowed: p.Status.DisruptionsAllowed}
		if made.statusMissing() {
			made.allowed = made.allowedBySpec(c)
		} else {
			made.stale = p.Status.ObservedGeneration < p.Generation
		}
		b.byNamespace[p.Namespace] = append(b.byNamespace[p.Namespace], made)
	}
	for _, list := range b.byNamespace {
		slices.SortFunc(list, func(x, y *budget) int { return cmp.Compare(x.Name, y.Name) })
	}
	return b
}

// statusMissing reports whether no controller has written the status.
func (b *budget) statusMissing() bool {
	s := &b.Status
	return s.ObservedGeneration == 0 && s.DisruptionsAllowed == 0 && s.CurrentHealthy == 0 &&
		s.DesiredHealthy == 0 &&
		s.ExpectedPods == 0 && len(s.Conditions) == 0
}

// allowedBySpec returns the disruptions that the spec allows with the pods of the cluster. It
// sets the status of a copy.
func (b *budget) allowedBySpec(c *Cluster) int32 {
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

// healthyPod reports whether a pod is Ready. A pod without conditions counts as healthy unless it
// is Pending.
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

func (b *Budgets) covering(p *v1.Pod) (out []*budget) {
	for _, entry := range b.byNamespace[p.Namespace] {
		if entry.selector.Matches(labels.Set(p.Labels)) {
			out = append(out, entry)
		}
	}
	return out
}

// Covers reports whether a budget covers a pod.
func (b *Budgets) Covers(p *v1.Pod) bool { return len(b.covering(p)) > 0 }

// Spend accounts the eviction of a pod to its budget. It returns why a budget blocks the
// eviction; empty: allowed.
func (b *Budgets) Spend(p *v1.Pod) (blocked string) {
	if p.Status.Phase == v1.PodPending || p.Status.Phase == v1.PodSucceeded ||
		p.Status.Phase == v1.PodFailed || p.DeletionTimestamp != nil {
		return ""
	}
	budgets := b.covering(p)
	if len(budgets) == 0 {
		return ""
	}
	if len(budgets) > 1 {
		return "covered by several PodDisruptionBudgets, which the eviction API rejects: " +
			namesOf(budgets)
	}
	entry := budgets[0]
	if !healthyPod(p) && entry.allowsUnhealthyEviction() {
		return ""
	}
	switch {
	case entry.stale:
		return fmt.Sprintf("PodDisruptionBudget %s: status is stale (older generation)", entry.Name)
	case entry.allowed <= 0:
		return fmt.Sprintf("PodDisruptionBudget %s allows no more disruptions: %d of %d pods healthy, %d desired",
			entry.Name, entry.Status.CurrentHealthy, entry.Status.ExpectedPods, entry.Status.DesiredHealthy)
	}
	entry.allowed--
	b.spent = append(b.spent, entry)
	return ""
}

// maxNames limits the budgets that a reason lists: tenants may create any number.
const maxNames = 10

func namesOf(budgets []*budget) string {
	var names []string
	for _, entry := range budgets[:min(len(budgets), maxNames)] {
		names = append(names, entry.Name)
	}
	text := strings.Join(names, ", ")
	if more := len(budgets) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Spent returns the number of disruptions accounted so far.
func (b *Budgets) Spent() int { return len(b.spent) }

// Undo reverts to the state in which Spent returned spent.
func (b *Budgets) Undo(spent int) {
	for _, entry := range b.spent[spent:] {
		entry.allowed++
	}
	b.spent = b.spent[:spent]
}

func (b *budget) allowsUnhealthyEviction() bool {
	if b.Spec.UnhealthyPodEvictionPolicy != nil &&
		*b.Spec.UnhealthyPodEvictionPolicy == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// Remaining returns the budgets with the remaining disruptions in their status, as a controller
// would write it before any replacement is healthy.
func (b *Budgets) Remaining() (out []*policyv1.PodDisruptionBudget) {
	for _, list := range b.byNamespace {
		for _, entry := range list {
			left := entry.DeepCopy()
			left.Status.DisruptionsAllowed = entry.allowed
			// mark the status as written
			left.Status.ObservedGeneration = max(left.Status.ObservedGeneration, left.Generation, 1)
			if entry.stale {
				left.Status.ObservedGeneration = entry.Status.ObservedGeneration
			}
			out = append(out, left)
		}
	}
	slices.SortFunc(out, func(x, y *policyv1.PodDisruptionBudget) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	return out
}
