package model

import (
	"fmt"
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// The index finds the same tolerated taints as the scheduler, which compares each taint with each
// toleration.
func TestToleratedTaintsAreThoseOfTheScheduler(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	effects := []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute}
	for round := range 500 {
		var nodes []*v1.Node
		for i := range 5 {
			n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
			for range r.IntN(40) {
				n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: pick(r, "a", "b", "c"), Value: pick(r, "", "1", "5", "v"), Effect: pick(r, effects...)})
			}
			nodes = append(nodes, n)
		}
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}}
		for range r.IntN(6) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{
				Key: pick(r, "", "a", "b", "other"), Value: pick(r, "", "1", "3", "v"), Effect: pick(r, append(effects, "")...),
				Operator: pick(r, "", v1.TolerationOpEqual, v1.TolerationOpExists, v1.TolerationOpGt, v1.TolerationOpLt, "unknown"),
			})
		}
		c := New(&Objects{Nodes: nodes, Pods: []*v1.Pod{p}}, nil)
		tolerated := c.Tolerated(c.Pods()[0])
		for _, n := range c.Nodes {
			for i, number := range n.taints {
				want := corev1.TolerationsTolerateTaint(klog.Logger{}, p.Spec.Tolerations, &n.Spec.Taints[i], true)
				if got := tolerated.has(number); got != want {
					t.Fatalf("round %d: taint %v tolerated = %v, want %v; tolerations %+v", round, n.Spec.Taints[i], got, want, p.Spec.Tolerations)
				}
			}
		}
	}
}
