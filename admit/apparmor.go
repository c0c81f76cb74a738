package admit

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// reasonAppArmor rejects a pod with a profile that cannot be enforced
// (pkg/kubelet/lifecycle/handlers.go).
const reasonAppArmor = "AppArmor"

// appendUnconfined appends a failure if a pod's AppArmor profile cannot be enforced
// (pkg/security/apparmor/validate.go). It does not check pods that have already started.
func appendUnconfined(out []Failure, pod *v1.Pod, n *NodeState) []Failure {
	if pod.Status.Phase != "" && pod.Status.Phase != v1.PodPending || !confined(pod) {
		return out
	}
	why := ""
	if n.AppArmor.OK && !n.AppArmor.V {
		why = "AppArmor is not enabled on the host"
	} else if p := findNamelessProfile(pod); p != nil {
		why = fmt.Sprintf("invalid empty AppArmor profile name: %q", p)
	}
	if why == "" {
		return out
	}
	return append(out, Failure{Reason: reasonAppArmor, Message: "Cannot enforce AppArmor: " + why})
}

// securityContexts yields the name and security context, which may be nil, of each container.
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

// confined reports whether a pod requests a profile anywhere (pkg/security/apparmor/helpers.go
// isRequired). Any annotation with a profile is enough; the kubelet checks only an arbitrary one.
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

// findNamelessProfile returns a profile of type Localhost without a name; nil: none.
func findNamelessProfile(pod *v1.Pod) (out *v1.AppArmorProfile) {
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

// profileOf returns the profile of a container: from its security context, an old annotation, or
// the pod (pkg/security/apparmor/helpers.go GetProfile).
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
