package admit

import v1 "k8s.io/api/core/v1"

// Reasons that no preemption removes (pkg/kubelet/lifecycle/predicate.go).
const (
	reasonOSLabel = "PodOSSelectorNodeLabelDoesNotMatch"
	reasonOSField = "PodOSNotSupported"
	reasonGroups  = "SupplementalGroupsPolicyNotSupported"
)

// appendUnsupported appends failures for features that the node does not support. The kubelet
// checks them before resources.
func appendUnsupported(out []Failure, pod *v1.Pod, n *NodeState) []Failure {
	if os, ok := pod.Labels[v1.LabelOSStable]; ok && os != nodeOS {
		out = append(out, Failure{Reason: reasonOSLabel,
			Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"})
	}
	if pod.Spec.OS != nil && pod.Spec.OS.Name != nodeOS {
		out = append(out, Failure{Reason: reasonOSField,
			Message: "Failed to admit pod as the OS field doesn't match node OS"})
	}
	c, supported := pod.Spec.SecurityContext, n.SupplementalGroups
	strict := c != nil && c.SupplementalGroupsPolicy != nil &&
		*c.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict
	if strict && supported.OK && !supported.V {
		out = append(out, Failure{Reason: reasonGroups,
			Message: "SupplementalGroupsPolicy=Strict is not supported in this node"})
	}
	return out
}
