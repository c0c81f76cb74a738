package admit

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// reasonAppArmor is why a pod is refused whose profile cannot be enforced
// (pkg/kubelet/lifecycle/handlers.go).
const reasonAppArmor = "AppArmor"

// unconfined says why a pod's AppArmor profile cannot be enforced
// (pkg/security/apparmor/validate.go). A pod that began to run already is not asked again.
func unconfined(out []Failure, pod *v1.Pod, n *NodeState) []Failure {
	if pod.Status.Phase != "" && pod.Status.Phase != v1.PodPending || !confined(pod) {
		return out
	}
	why := ""
	if n.AppArmor.OK && !n.AppArmor.V {
		why = "AppArmor is not enabled on the host"
	} else if p := namelessProfile(pod); p != nil {
		why = fmt.Sprintf("invalid empty AppArmor profile name: %q", p)
	}
	if why == "" {
		return out
	}
	return append(out, Failure{Reason: reasonAppArmor, Message: "Cannot enforce AppArmor: " + why})
}

// securityContexts are those of all containers, with their names; some are nil.
func securityContexts(pod *v1.Pod, yield func(name string, c *v1.SecurityContext) bool) {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if !yield(list[i].Name, list[i].SecurityContext) {
				return
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; !yield(c.Name, c.SecurityContext) {
			return
		}
	}
}

// confined reports whether a pod asks for a profile anywhere (pkg/security/apparmor/helpers.go
// isRequired). Of its annotations one is enough; the kubelet looks at any one of them.
func confined(pod *v1.Pod) bool {
	asks := func(p *v1.AppArmorProfile) bool {
		return p != nil && p.Type != v1.AppArmorProfileTypeUnconfined
	}
	if c := pod.Spec.SecurityContext; c != nil && asks(c.AppArmorProfile) {
		return true
	}
	found := false
	securityContexts(pod, func(_ string, c *v1.SecurityContext) bool {
		found = c != nil && asks(c.AppArmorProfile)
		return !found
	})
	for key, value := range pod.Annotations {
		found = found || strings.HasPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) &&
			value != v1.DeprecatedAppArmorBetaProfileNameUnconfined
	}
	return found
}

// namelessProfile is one of the node's own that has no name; nil: there is none.
func namelessProfile(pod *v1.Pod) (out *v1.AppArmorProfile) {
	securityContexts(pod, func(name string, c *v1.SecurityContext) bool {
		p := profileOf(pod, name, c)
		if p != nil && p.Type == v1.AppArmorProfileTypeLocalhost &&
			(p.LocalhostProfile == nil || strings.TrimSpace(*p.LocalhostProfile) == "") {
			out = p
		}
		return out == nil
	})
	return out
}

// profileOf is the profile of a container: its own, of an old annotation, or the pod's
// (pkg/security/apparmor/helpers.go GetProfile).
func profileOf(pod *v1.Pod, name string, c *v1.SecurityContext) *v1.AppArmorProfile {
	if c != nil && c.AppArmorProfile != nil {
		return c.AppArmorProfile
	}
	value := pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+name]
	if value == v1.DeprecatedAppArmorBetaProfileRuntimeDefault {
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	}
	if value == v1.DeprecatedAppArmorBetaProfileNameUnconfined {
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	}
	if local, ok := strings.CutPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix); ok {
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &local}
	}
	if pod.Spec.SecurityContext != nil {
		return pod.Spec.SecurityContext.AppArmorProfile
	}
	return nil
}
