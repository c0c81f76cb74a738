package model

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// selectedNode is the annotation of a claim whose volume was made for a node
// (k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding).
const selectedNode = "volume.kubernetes.io/selected-node"

// zoneLabels say where a volume is; the older ones are still on old volumes.
var zoneLabels = []string{
	v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone,
	v1.LabelFailureDomainBetaRegion,
}

// Claims are the claims of a pod that are known, and whether all are. A generic ephemeral volume
// has a claim of the pod's and its own name.
func (c *Cluster) Claims(p *v1.Pod) (out []*v1.PersistentVolumeClaim, all bool) {
	all = true
	for i := range p.Spec.Volumes {
		name := ""
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = p.Name + "-" + v.Name
		default:
			continue
		}
		claim := c.claims[p.Namespace+"/"+name]
		if claim == nil {
			all = false
			continue
		}
		out = append(out, claim)
	}
	return out, all
}

// outOfReach names the claim whose volume a node does not reach; empty: it reaches all that are
// known.
func (c *Cluster) outOfReach(claims []*v1.PersistentVolumeClaim, n *Node) string {
	for _, claim := range claims {
		if pv := c.volumes[claim.Spec.VolumeName]; pv != nil {
			if !reaches(pv, n) || !inZones(pv.Labels, n) {
				return claim.Name
			}
			continue
		}
		// The volume itself is not known: it is where the node is that it was made for.
		if was := c.byName[claim.Annotations[selectedNode]]; was != nil && claim.Spec.VolumeName != "" &&
			!sameZone(was, n) {
			return claim.Name
		}
	}
	return ""
}

// reaches: a volume says itself which nodes reach it.
func reaches(pv *v1.PersistentVolume, n *Node) bool {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return true
	}
	s, err := nodeaffinity.NewNodeSelector(pv.Spec.NodeAffinity.Required)
	return err == nil && s.Match(n.Node)
}

// inZones: a volume's label may name several zones, with __ between them.
func inZones(of map[string]string, n *Node) bool {
	for _, key := range zoneLabels {
		zones, ok := of[key]
		if !ok {
			continue
		}
		value, known := n.Labels[key]
		if !known {
			return false
		}
		found := false
		for zone := range strings.SplitSeq(zones, "__") {
			found = found || zone == value
		}
		if !found {
			return false
		}
	}
	return true
}

func sameZone(a, b *Node) bool {
	for _, key := range zoneLabels {
		if value, ok := a.Labels[key]; ok && b.Labels[key] != value {
			return false
		}
	}
	return true
}

// Claim is a claim by its name; nil: it is not known.
func (c *Cluster) Claim(namespace, name string) *v1.PersistentVolumeClaim {
	return c.claims[namespace+"/"+name]
}
