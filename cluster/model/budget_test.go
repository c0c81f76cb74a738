package model

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A budget with an invalid share, or with the wrong health of its pods, allows no eviction.
func TestBudgetsThatAllowNothing(t *testing.T) {
	ready := func(status v1.ConditionStatus) *v1.Pod {
		p := podOn(t, "p", "n1", "app: a", "")
		p.Status.Phase, p.Status.Conditions = v1.PodRunning, []v1.PodCondition{{Type: v1.PodReady, Status: status}}
		return p
	}
	for name, c := range map[string]struct {
		edit    func(*policyv1.PodDisruptionBudget)
		ready   v1.ConditionStatus
		allowed bool
	}{
		"invalid minAvailable":                              {func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = new(intstr.FromString("most")) }, v1.ConditionTrue, false},
		"invalid maxUnavailable":                            {func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = new(intstr.FromString("few")) }, v1.ConditionTrue, false},
		"no healthy pod is desired, the pod is not healthy": {func(b *policyv1.PodDisruptionBudget) { b.Status.ExpectedPods = 1 }, v1.ConditionFalse, false},
		"one healthy pod is desired, another is": {func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy, b.Status.DesiredHealthy = 1, 1 },
			v1.ConditionFalse, true},
	} {
		p := ready(c.ready)
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "x"},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}}
		c.edit(b)
		cl := New(&Objects{Nodes: []*v1.Node{node("n1", "a")}, Pods: []*v1.Pod{p}}, nil)
		if why := NewBudgets(cl, []*policyv1.PodDisruptionBudget{b}).Spend(p); (why == "") != c.allowed {
			t.Errorf("%s: Spend() = %q, want allowed: %t", name, why, c.allowed)
		}
	}
	for count, want := range map[int]string{2: "b0, b1", maxNames: "b9", maxNames + 1: "b9 and 1 more"} {
		var all []*budget
		for i := range count {
			all = append(all, &budget{PodDisruptionBudget: &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("b", i)}}})
		}
		if got := namesOf(all); !strings.HasSuffix(got, want) {
			t.Errorf("names of %d budgets = %q, want %q at the end", count, got, want)
		}
	}
}
