package mirror

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cluster/lifecycle"
)

// rivalWrite is the last write of a node's taints by a rival.
type rivalWrite struct {
	manager string
	at      time.Time // of this machine
}

// Rival returns the field manager among the rivals that last wrote taints of the node, and the time
// of the write, of this machine; empty: none.
func (v *View) Rival(node string) (manager string, at time.Time) {
	w := v.m.rivalWrites[node]
	return w.manager, w.at
}

// updateRival dates the last write of a rival when a node changes. A kubelet may write any entry of
// managedFields on its node, with any time, but no taints. So an entry counts when the taints
// that this program manages change with it, from then on: k3s changes others with its cloud
// controller. On a node that is new to the mirror, it counts from its own time, or from now if that
// is in the future. previous may be nil. The lock must be held.
func (m *Mirror) updateRival(previous, n *v1.Node) {
	known := previous != nil && previous.UID == n.UID
	if known && equality.Semantic.DeepEqual(managedTaints(previous), managedTaints(n)) {
		return
	}
	if !known {
		delete(m.rivalWrites, n.Name)
	}
	for i := range n.ManagedFields {
		f := &n.ManagedFields[i]
		if !slices.Contains(m.o.Rivals, f.Manager) || f.Subresource != "" || f.Time == nil ||
			known && hasEntry(previous, f) {
			continue
		}
		at := time.Now()
		if !known {
			at = m.o.FromServer(f.Time.Time)
		}
		if at.After(m.rivalWrites[n.Name].at) {
			m.rivalWrites[n.Name] = rivalWrite{f.Manager, at}
		}
	}
}

// managedTaints returns the taints of a node that this program manages.
func managedTaints(n *v1.Node) (out []v1.Taint) {
	for i := range n.Spec.Taints {
		if t := &n.Spec.Taints[i]; lifecycle.Manages(t) {
			out = append(out, *t)
		}
	}
	return out
}

// hasEntry reports whether the node has an entry of the same manager and time.
func hasEntry(n *v1.Node, f *metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(n.ManagedFields, func(other metav1.ManagedFieldsEntry) bool {
		return other.Manager == f.Manager && other.Subresource == f.Subresource &&
			other.Time.Equal(f.Time)
	})
}
