package podjson

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Trim returns a new object with the fields that decisions and records need: names and UID, labels,
// owners, annotations that decide (IsKeptAnnotation, and of AppArmor), priority, resources, volumes
// that may be on the node's disks, writable mounts of those that are not measured, scheduling
// constraints, required features of the node (host ports, sysctls, AppArmor), phase with its reason
// (for failed pods, to recognize evictions), QoS class, and the kubelet's allocation. It shares
// maps and pointers with p, except those of quantities that are added up.
func Trim(p *v1.Pod) *v1.Pod {
	out := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID: p.UID, Namespace: p.Namespace, Name: p.Name, Labels: p.Labels,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
			OwnerReferences: p.OwnerReferences,
		},
		Spec: v1.PodSpec{
			NodeName: p.Spec.NodeName, NodeSelector: p.Spec.NodeSelector, Tolerations: p.Spec.Tolerations,
			OS:          p.Spec.OS,
			HostNetwork: p.Spec.HostNetwork, HostIPC: p.Spec.HostIPC, HostUsers: p.Spec.HostUsers,
			RestartPolicy:     p.Spec.RestartPolicy,
			RuntimeClassName:  p.Spec.RuntimeClassName,
			PriorityClassName: p.Spec.PriorityClassName, Priority: p.Spec.Priority,
			PreemptionPolicy:              p.Spec.PreemptionPolicy,
			TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds, Overhead: p.Spec.Overhead,
			Resources:           p.Spec.Resources.DeepCopy(), // libraries add to its quantities
			Containers:          trimContainers(&p.Spec, p.Spec.Containers),
			InitContainers:      trimContainers(&p.Spec, p.Spec.InitContainers),
			EphemeralContainers: trimEphemeral(p.Spec.EphemeralContainers),
			Volumes:             trimVolumes(p.Spec.Volumes),
		},
		Status: v1.PodStatus{Phase: p.Status.Phase, Reason: p.Status.Reason, QOSClass: p.Status.QOSClass},
	}
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		out.Spec.Affinity = &v1.Affinity{NodeAffinity: a.NodeAffinity}
	}
	if c := p.Spec.SecurityContext; c != nil && (len(c.Sysctls) > 0 || c.AppArmorProfile != nil ||
		c.SupplementalGroupsPolicy != nil) {
		out.Spec.SecurityContext = &v1.PodSecurityContext{
			Sysctls: c.Sysctls, AppArmorProfile: c.AppArmorProfile,
			SupplementalGroupsPolicy: c.SupplementalGroupsPolicy,
		}
	}
	if a := keptAnnotations(p.Annotations); len(a) > 0 {
		out.Annotations = a
	}
	KeepAllocation(out, p)
	return out
}

// KeepAllocation copies the kubelet's allocation (stats.Granted) from p's status to out's. It
// shares maps with p. To save memory, it leaves out the statuses of a pod that was not resized, if
// the total shows that the pod has an allocation.
func KeepAllocation(out, p *v1.Pod) {
	s := &out.Status
	total := p.Status.AllocatedResources
	if len(total) == 0 {
		total = nil
	}
	regular := allocations(p.Spec.Containers, p.Status.ContainerStatuses)
	initial := allocations(p.Spec.InitContainers, p.Status.InitContainerStatuses)
	if total != nil && unresized(p.Spec.Containers, regular) &&
		unresized(p.Spec.InitContainers, initial) && covered(p) {
		regular, initial = nil, nil
	}
	s.AllocatedResources, s.ContainerStatuses, s.InitContainerStatuses = total, regular, initial
}

// allocations returns the statuses of containers with an allocation, reduced to that.
func allocations(list []v1.Container, states []v1.ContainerStatus) (out []v1.ContainerStatus) {
	of := make(map[string]*v1.ContainerStatus, len(states))
	for i := range slices.Backward(states) { // the first of a name counts
		of[states[i].Name] = &states[i]
	}
	for i := range list {
		s := of[list[i].Name]
		if s == nil || len(s.AllocatedResources) == 0 && s.Resources == nil {
			continue
		}
		delete(of, s.Name)
		applied := s.Resources
		if len(s.AllocatedResources) > 0 && applied != nil &&
			sameResizable(list[i].Resources.Limits, applied.Limits) {
			applied = nil // only its limits would count
		}
		k := v1.ContainerStatus{Name: s.Name, AllocatedResources: s.AllocatedResources}
		if applied != nil {
			k.Resources = &v1.ResourceRequirements{Requests: applied.Requests, Limits: applied.Limits}
		}
		out = append(out, k)
	}
	return out
}

// unresized reports whether the spec of each container equals its allocation.
func unresized(list []v1.Container, allocations []v1.ContainerStatus) bool {
	for i := range list {
		c := &list[i]
		at := slices.IndexFunc(allocations, func(s v1.ContainerStatus) bool { return s.Name == c.Name })
		if at < 0 {
			return false
		}
		requests, applied := allocations[at].AllocatedResources, allocations[at].Resources
		if applied != nil && len(requests) == 0 {
			requests = applied.Requests
		}
		if !sameResizable(c.Resources.Requests, requests) ||
			applied != nil && !sameResizable(c.Resources.Limits, applied.Limits) {
			return false
		}
	}
	return true
}

// covered reports whether the total covers the requests in the spec, so that stats.Granted lowers
// none of them.
func covered(p *v1.Pod) bool {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		left := p.Status.AllocatedResources[name].DeepCopy()
		left.Sub(p.Spec.Overhead[name])
		for i := range p.Spec.InitContainers {
			c := &p.Spec.InitContainers[i]
			if request := c.Resources.Requests[name]; left.Cmp(request) < 0 {
				return false
			} else if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
				left.Sub(request)
			}
		}
		for i := range p.Spec.Containers {
			left.Sub(p.Spec.Containers[i].Resources.Requests[name])
		}
		if left.Sign() < 0 {
			return false
		}
	}
	return true
}

// sameResizable reports whether two lists have the same CPU and memory, which a resize may change.
func sameResizable(a, b v1.ResourceList) bool {
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		q, inA := a[name]
		other, inB := b[name]
		if inA != inB || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

// DropAllocation removes the kubelet's allocation from the status of a pod, for an object whose
// source must not state it.
func DropAllocation(p *v1.Pod) {
	s := &p.Status
	s.AllocatedResources, s.Resources, s.ContainerStatuses, s.InitContainerStatuses = nil, nil, nil, nil
}

func keptAnnotations(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return !IsKeptAnnotation(key) && !isAppArmor(key)
	})
	return maps.Clone(out) // releases the unused memory
}

func isAppArmor(annotation string) bool {
	return strings.HasPrefix(annotation, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
}

// trimContainers keeps host ports only; in the host's network, all ports are host ports. It keeps
// the names of unmeasured volumes that are mounted for writing.
func trimContainers(s *v1.PodSpec, all []v1.Container) []v1.Container {
	var out []v1.Container
	unmeasured := unmeasuredVolumes(s)
	for i := range all {
		c := &all[i]
		resources := v1.ResourceRequirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits}
		kept := v1.Container{
			Name: c.Name, Resources: resources, RestartPolicy: c.RestartPolicy,
			SecurityContext: trimSecurity(c.SecurityContext),
			VolumeMounts:    writableMounts(c.VolumeMounts, unmeasured),
		}
		for _, port := range c.Ports {
			if port.HostPort != 0 || s.HostNetwork {
				kept.Ports = append(kept.Ports, port)
			}
		}
		if out == nil {
			out = make([]v1.Container, 0, len(all))
		}
		out = append(out, kept)
	}
	return out
}

// unmeasuredVolumes returns the names of the volumes that the agent does not measure and that may
// be on the node's disks.
func unmeasuredVolumes(s *v1.PodSpec) (names map[string]bool) {
	for i := range s.Volumes {
		v := &s.Volumes[i]
		if v.HostPath != nil || v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			if names == nil {
				names = map[string]bool{}
			}
			names[v.Name] = true
		}
	}
	return names
}

// writableMounts keeps one mount of each volume that is mounted for writing, with its name only.
func writableMounts(all []v1.VolumeMount, of map[string]bool) (out []v1.VolumeMount) {
	if len(of) == 0 {
		return nil
	}
	kept := map[string]bool{}
	for i := range all {
		if m := &all[i]; of[m.Name] && !m.ReadOnly && !kept[m.Name] {
			kept[m.Name] = true
			out = append(out, v1.VolumeMount{Name: m.Name})
		}
	}
	return slices.Clip(out)
}

// trimSecurity keeps the AppArmor profile, which a node may not support.
func trimSecurity(c *v1.SecurityContext) *v1.SecurityContext {
	if c == nil || c.AppArmorProfile == nil {
		return nil
	}
	return &v1.SecurityContext{AppArmorProfile: c.AppArmorProfile}
}

// trimEphemeral keeps containers with an AppArmor profile.
func trimEphemeral(all []v1.EphemeralContainer) (out []v1.EphemeralContainer) {
	for i := range all {
		if c := trimSecurity(all[i].SecurityContext); c != nil {
			common := v1.EphemeralContainerCommon{Name: all[i].Name, SecurityContext: c}
			out = append(out, v1.EphemeralContainer{EphemeralContainerCommon: common})
		}
	}
	return slices.Clip(out)
}

// trimVolumes keeps the volumes that may be on the node's disks or in its memory, most of them
// without details.
func trimVolumes(all []v1.Volume) []v1.Volume {
	var out []v1.Volume
	for i := range all {
		v := &all[i]
		kept := v1.Volume{Name: v.Name}
		switch {
		case v.EmptyDir != nil:
			kept.EmptyDir = v.EmptyDir
			// String caches its result in the quantity: call it now, before others read it
			// concurrently
			_ = v.EmptyDir.SizeLimit.String()
		case v.HostPath != nil:
			kept.HostPath = v.HostPath
		case v.ConfigMap != nil:
			kept.ConfigMap = &v1.ConfigMapVolumeSource{LocalObjectReference: v.ConfigMap.LocalObjectReference}
		case v.GitRepo != nil:
			kept.GitRepo = &v1.GitRepoVolumeSource{Repository: v.GitRepo.Repository}
		case v.PersistentVolumeClaim != nil:
			kept.PersistentVolumeClaim = v.PersistentVolumeClaim
		case v.Ephemeral != nil:
			kept.Ephemeral = &v1.EphemeralVolumeSource{}
		default:
			continue
		}
		out = append(out, kept)
	}
	return slices.Clip(out)
}

// IsKeptAnnotation reports whether an annotation affects decisions.
func IsKeptAnnotation(annotation string) bool {
	return strings.HasPrefix(annotation, "jettison/") ||
		strings.HasPrefix(annotation, "kubernetes.io/config.")
}

// location is the type that all times share, so Size does not count it.
var location = reflect.TypeFor[*time.Location]()

// Size estimates the memory of an object in bytes, including everything it points to.
func Size(p *v1.Pod) int {
	return int(reflect.TypeFor[v1.Pod]().Size()) + referenced(reflect.ValueOf(p).Elem())
}

// referenced returns the memory that a value points to, without its own size.
func referenced(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Pointer:
		if v.IsNil() || v.Type() == location {
			return 0
		}
		return int(v.Type().Elem().Size()) + referenced(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			n += referenced(v.Field(i))
		}
	case reflect.Slice:
		n = v.Cap() * int(v.Type().Elem().Size())
		if k := v.Type().Elem().Kind(); k < reflect.Array { // numbers
			return n
		}
		for i := range v.Len() {
			n += referenced(v.Index(i))
		}
	case reflect.Map:
		if v.IsNil() {
			return 0
		}
		// Go's maps come in groups of eight slots, and a small one is one group.
		n = 48 + (v.Len()+7)/8*8*int(v.Type().Key().Size()+v.Type().Elem().Size()+1)
		for it := v.MapRange(); it.Next(); {
			n += referenced(it.Key()) + referenced(it.Value())
		}
	}
	return n
}
