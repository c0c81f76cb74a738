package mirror

import (
	"fmt"
	"slices"
	"strings"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cluster/taint"
	"jettison/internal/cluster/tolerations"
)

// maxTolerations limits the number of toleration lists that pods share. Most pods have the same few
// lists; rare lists must not use much memory.
const maxTolerations = 4096

// trimmer reduces objects to the fields that decisions use. Its method pod requires the mirror's
// lock.
type trimmer struct {
	rivals      []string
	tolerations map[string][]v1.Toleration
}

// keptLabels lists the node labels that decisions depend on.
var keptLabels = []string{
	v1.LabelTopologyRegion, v1.LabelTopologyZone, v1.LabelFailureDomainBetaRegion,
	v1.LabelFailureDomainBetaZone,
	v1.LabelOSStable, v1.LabelArchStable, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	"node.kubernetes.io/exclude-disruption", "node-role.kubernetes.io/control-plane",
}

func (k *trimmer) node(n *v1.Node) *v1.Node {
	out := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion,
		CreationTimestamp: n.CreationTimestamp, Labels: map[string]string{},
	}}
	for _, l := range keptLabels {
		if v, ok := n.Labels[l]; ok {
			out.Labels[l] = v
		}
	}
	for i := range n.ManagedFields {
		f := &n.ManagedFields[i]
		kubelet := f.Manager == "kubelet" && f.Subresource == "status"
		rival := slices.Contains(k.rivals, f.Manager) &&
			(f.FieldsV1 == nil || strings.Contains(f.FieldsV1.GetRawString(), `"f:taints"`))
		if kubelet || rival {
			out.ManagedFields = append(out.ManagedFields, metav1.ManagedFieldsEntry{Manager: f.Manager,
				Subresource: f.Subresource, Time: f.Time})
		}
	}
	out.Spec = v1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable,
		ProviderID: n.Spec.ProviderID}
	out.Status = v1.NodeStatus{Conditions: n.Status.Conditions, Addresses: n.Status.Addresses}
	return out
}

func (k *trimmer) lease(l *coordination.Lease) *coordination.Lease {
	out := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.Name, UID: l.UID,
		ResourceVersion: l.ResourceVersion}}
	out.Spec.RenewTime = l.Spec.RenewTime
	for i := range l.OwnerReferences {
		if o := &l.OwnerReferences[i]; o.Kind == "Node" {
			out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{Kind: o.Kind,
				UID: o.UID})
		}
	}
	for i := range l.ManagedFields {
		if f := &l.ManagedFields[i]; f.Time != nil {
			out.ManagedFields = append(out.ManagedFields, metav1.ManagedFieldsEntry{Time: f.Time})
		}
	}
	return out
}

// pod returns the trimmed pod with a shared list of tolerations.
func (k *trimmer) pod(p *v1.Pod) *v1.Pod {
	out := trimPod(p)
	if len(out.Spec.Tolerations) == 0 {
		return out
	}
	key := tolerationKey(out.Spec.Tolerations)
	shared, ok := k.tolerations[key]
	if ok {
		out.Spec.Tolerations = shared
		return out
	}
	if len(k.tolerations) >= maxTolerations {
		clear(k.tolerations) // common lists are soon stored again
	}
	k.tolerations[key] = out.Spec.Tolerations
	return out
}

// keptTolerations returns the tolerations that decide on NoExecute taints. If they are too large,
// the pod is read again when a taint concerns it.
func keptTolerations(all []v1.Toleration) []v1.Toleration {
	if taint.Unread(all) {
		return all
	}
	out, ok := tolerations.Kept(all, func(t *v1.Toleration) bool {
		return (t.Effect == "" || t.Effect == v1.TaintEffectNoExecute) &&
			(t.Operator == "" || t.Operator == v1.TolerationOpEqual || t.Operator == v1.TolerationOpExists)
	}, func(earlier, later *v1.Toleration) bool { // the first match decides
		return earlier.Key == "" && earlier.Operator == v1.TolerationOpExists ||
			earlier.Key == later.Key && earlier.Operator == later.Operator && earlier.Value == later.Value
	})
	if !ok {
		return []v1.Toleration{taint.NotKept(all)}
	}
	return out
}

func tolerationKey(all []v1.Toleration) string {
	var b strings.Builder
	for i := range all {
		t := &all[i]
		seconds := int64(-1 << 63)
		if t.TolerationSeconds != nil {
			seconds = *t.TolerationSeconds
		}
		fmt.Fprintf(&b, "%s\x00%s\x00%s\x00%s\x00%d\x00", t.Key, t.Operator, t.Value, t.Effect, seconds)
	}
	return b.String()
}

func trimPod(p *v1.Pod) *v1.Pod {
	out := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
		CreationTimestamp: p.CreationTimestamp,
		DeletionTimestamp: p.DeletionTimestamp,
	}}
	out.Spec.NodeName, out.Spec.Tolerations, out.Status.Phase = p.Spec.NodeName,
		keptTolerations(p.Spec.Tolerations), p.Status.Phase
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodReady {
			out.Status.Conditions = []v1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out
}

// sameHeartbeats reports whether all conditions of the two nodes have the same heartbeats.
func sameHeartbeats(a, b *v1.Node) bool {
	return sameConditions(a, b, func(a, b *v1.NodeCondition) bool {
		return a.LastHeartbeatTime.Equal(
			&b.LastHeartbeatTime)
	})
}

// sameConditions reports whether two nodes have the same conditions in any order. Each patch may
// change the order.
func sameConditions(a, b *v1.Node, same func(a, b *v1.NodeCondition) bool) bool {
	if len(a.Status.Conditions) != len(b.Status.Conditions) {
		return false
	}
	for i := range a.Status.Conditions {
		c := &a.Status.Conditions[i]
		j := slices.IndexFunc(b.Status.Conditions,
			func(other v1.NodeCondition) bool { return other.Type == c.Type })
		if j < 0 || !same(c, &b.Status.Conditions[j]) {
			return false
		}
	}
	return true
}

// sameNode reports whether two versions of a node are equal except for heartbeats and versions.
func sameNode(a, b *v1.Node) bool {
	return a.Spec.Unschedulable == b.Spec.Unschedulable && equality.Semantic.DeepEqual(a.Labels,
		b.Labels) &&
		equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) &&
		sameConditions(a, b, func(a, b *v1.NodeCondition) bool {
			return a.Status == b.Status && a.Reason == b.Reason &&
				a.LastTransitionTime.Equal(&b.LastTransitionTime)
		})
}
