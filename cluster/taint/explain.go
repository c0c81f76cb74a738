package taint

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Verdict describes the effect of one taint of a node on a pod of that node.
type Verdict struct {
	Taint      v1.Taint       // with the TimeAdded that the decision uses
	Toleration *v1.Toleration // the first match; nil: the taint is not tolerated
	Unread     bool           // the tolerations are not known yet: the fields below are not set
	Forever    bool           // tolerated without a limit
	Deadline   time.Time      // when the pod must leave because of this taint; zero: never
}

// Explain returns a Verdict for each NoExecute taint of a node, in the node's order.
func (c *Core) Explain(now time.Time, n *v1.Node, p *v1.Pod) (out []Verdict) {
	taints := c.noExecuteTaints(now, n)
	tolerations, known := c.tolerationsOf(p, taints)
	_, transition := c.transition(now, n)
	for _, t := range taints {
		if !known {
			out = append(out, Verdict{Taint: t, Unread: true})
			continue
		}
		v := Verdict{Taint: t, Toleration: firstMatch(&t, tolerations)}
		at, _, limited := deadline([]v1.Taint{t}, times{transition, c.createdAt(now, p), c.settled}, tolerations)
		if v.Forever = !limited; limited {
			v.Deadline = at
		}
		out = append(out, v)
	}
	return out
}

// Due reports whether the pod must leave now. n may be newer than the node that the last Step saw.
func (c *Core) Due(now time.Time, n *v1.Node, p *v1.Pod) bool {
	taints := c.noExecuteTaints(now, n)
	tolerations, known := c.tolerationsOf(p, taints)
	_, transition := c.transition(now, n)
	at, _, limited := deadline(taints, times{transition, c.createdAt(now, p), c.settled}, tolerations)
	return known && limited && !at.After(now)
}

// noExecuteTaints returns a copy of the node's NoExecute taints with the times that Step uses, or
// would use.
func (c *Core) noExecuteTaints(now time.Time, n *v1.Node) (out []v1.Taint) {
	for _, t := range n.Spec.Taints {
		if t.Effect != v1.TaintEffectNoExecute {
			continue
		}
		t.TimeAdded = &metav1.Time{Time: c.addedAt(now, n, &t)}
		out = append(out, t)
	}
	return out
}
