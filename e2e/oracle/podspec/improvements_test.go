package podspec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// improvement returns the reason why only one side has an error about a field; empty: it is not
// documented. typed: ours found values of a wrong type, and checks no rules then. undecoded:
// upstream could not decode the object, and names no field.
func improvement(name string, ours bool, object any, typed, undecoded bool) string {
	if undecoded && ours {
		return "upstream names no field of a value of a wrong type"
	}
	if typed {
		return "values of a wrong type are reported alone, with their lines"
	}
	p, ok := object.(*v1.Pod)
	if !ok {
		return ""
	}
	windows := p.Spec.OS != nil && p.Spec.OS.Name != v1.Linux
	class := p.Spec.PriorityClassName
	switch {
	case ours && name == "metadata.uid":
		return "a UID becomes part of paths and cgroups"
	case ours && strings.HasPrefix(name, "spec.priority") && class != "":
		return "no API server resolves priority classes"
	case ours && strings.HasPrefix(name, "metadata.annotations["):
		return "annotations that would have to be applied are refused"
	case windows && (strings.HasPrefix(name, "spec.os") || strings.HasPrefix(name, "spec.resources") || !ours):
		return "the node runs Linux"
	case p.Spec.DNSPolicy == v1.DNSNone && (name == "spec.dnsPolicy" || strings.HasPrefix(name, "spec.dnsConfig")):
		return "dnsConfig is not supported yet"
	case p.Spec.Resources != nil && (!ours && strings.HasPrefix(name, "spec.resources.containers[") ||
		ours && strings.Contains(name, ".resources.limits[") && strings.HasPrefix(name, "spec.containers[")):
		return "a limit above the pod's is named by its own field"
	case ours && strings.HasPrefix(name, "spec.initContainers[") && strings.Contains(name, ".restartPolicyRules"):
		return "rules of an init container without a restart policy are checked, too"
	}
	return ""
}
