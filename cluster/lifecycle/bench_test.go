package lifecycle

import (
	"fmt"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkStep measures a step with 5,000 nodes in three zones: all ready, or a tenth silent and
// tainted.
func BenchmarkStep(b *testing.B) {
	for _, silent := range []int{0, 500} {
		b.Run(fmt.Sprint(silent, "-silent"), func(b *testing.B) {
			s, all := Seen{}, nodes(5000, 0)
			s = seen(all)
			i := 0
			for name, n := range all {
				n.Labels = map[string]string{v1.LabelTopologyRegion: "r", v1.LabelTopologyZone: fmt.Sprint(i % 3)}
				for _, t := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure} {
					n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: t, Status: v1.ConditionFalse})
				}
				if i++; i <= silent {
					for j := range n.Status.Conditions {
						n.Status.Conditions[j].Status = v1.ConditionUnknown
					}
					n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule},
						{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute, TimeAdded: &metav1.Time{Time: start}}}
				}
				s.Leases[name] = &coordination.Lease{Spec: coordination.LeaseSpec{RenewTime: &metav1.MicroTime{Time: start}}}
			}
			c := New(defaults())
			c.Step(start, s)
			b.ReportAllocs()
			for b.Loop() {
				c.Step(start.Add(time.Second), s)
			}
		})
	}
}
