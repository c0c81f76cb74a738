package taint

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Verdict is what one taint of a node means for a pod on it.
type Verdict struct {
	Taint      v1.Taint       // with since when it counts as there
	Toleration *v1.Toleration // that counts; nil: it is not tolerated
	Forever    bool           // it is tolerated for ever
	Deadline   time.Time      // when the pod has to go because of it; zero: never
}

// Explain tells of each NoExecute taint of a node what it means for a pod on it, in the order in which the node has them.
func (c *Core) Explain(now time.Time, n *v1.Node, p *v1.Pod) (out []Verdict) {
	for _, t := range n.Spec.Taints {
		if t.Effect != v1.TaintEffectNoExecute {
			continue
		}
		if t.TimeAdded.IsZero() || t.TimeAdded.After(now) {
			at, known := c.sights[sight{n.UID, n.Name, t.Key, t.Value}]
			if !known {
				at = now
			}
			t.TimeAdded = &metav1.Time{Time: at}
		}
		v := Verdict{Taint: t, Toleration: first(&t, p.Spec.Tolerations)}
		at, _, ever := deadline([]v1.Taint{t}, p, now)
		if v.Forever = !ever; ever {
			v.Deadline = at
		}
		out = append(out, v)
	}
	return out
}
