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

// Explain tells of each NoExecute taint of a node what it means for a pod on it, in the order in
// which the node has them.
func (c *Core) Explain(now time.Time, n *v1.Node, p *v1.Pod) (out []Verdict) {
	for _, t := range c.evicting(now, n) {
		v := Verdict{Taint: t, Toleration: first(&t, p.Spec.Tolerations)}
		at, _, ever := deadline(n, []v1.Taint{t}, p, now)
		if v.Forever = !ever; ever {
			v.Deadline = at
		}
		out = append(out, v)
	}
	return out
}

// Due reports whether a pod has to go now by what is known of its node, which may be newer than
// what the last Step has seen.
func (c *Core) Due(now time.Time, n *v1.Node, p *v1.Pod) bool {
	at, _, ever := deadline(n, c.evicting(now, n), p, now)
	return ever && !at.After(now)
}

// evicting are the taints of a node that evict, each with since when it is there, as far as the
// last Step has seen them.
func (c *Core) evicting(now time.Time, n *v1.Node) (out []v1.Taint) {
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
		out = append(out, t)
	}
	return out
}
