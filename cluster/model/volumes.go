package model

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// selectedNodeAnnotation of a claim names the node for which its volume was provisioned
// (k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding).
const selectedNodeAnnotation = "volume.kubernetes.io/selected-node"

// zoneLabels of volumes and nodes, including the deprecated ones that old volumes have.
var zoneLabels = []string{
	v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone,
	v1.LabelFailureDomainBetaRegion,
}

// Claims returns the known claims of a pod, and whether all are known. A generic ephemeral volume
// has a claim named after the pod and the volume.
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

// unreachableClaim returns the name of a claim with a volume that a node cannot reach; empty: all
// known volumes are reachable.
func (c *Cluster) unreachableClaim(claims []*v1.PersistentVolumeClaim, n *Node) string {
	for _, claim := range claims {
		if pv := c.volumes[claim.Spec.VolumeName]; pv != nil {
			if !nodeReachesVolume(pv, n) || !inZones(pv.Labels, n) {
				return claim.Name
			}
			continue
		}
		// The volume is unknown: it is in the zone of the node for which it was provisioned.
		if node := c.byName[claim.Annotations[selectedNodeAnnotation]]; node != nil && claim.Spec.VolumeName != "" &&
			!sameZone(node, n) {
			return claim.Name
		}
	}
	return ""
}

// nodeReachesVolume reports whether the node affinity of a volume matches a node.
func nodeReachesVolume(pv *v1.PersistentVolume, n *Node) bool {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return true
	}
	s, err := nodeaffinity.NewNodeSelector(pv.Spec.NodeAffinity.Required)
	return err == nil && s.Match(n.Node)
}

// inZones reports whether a node is in the zones of a volume. A label may list several zones,
// separated by __.
func inZones(volumeLabels map[string]string, n *Node) bool {
	for _, key := range zoneLabels {
		zones, ok := volumeLabels[key]
		if !ok {
			continue
		}
		value, found := n.Labels[key], false
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

// Claim returns a claim by its name; nil: unknown.
func (c *Cluster) Claim(namespace, name string) *v1.PersistentVolumeClaim {
	return c.claims[namespace+"/"+name]
}
