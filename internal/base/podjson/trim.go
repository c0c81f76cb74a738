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

// Trim is a new object with what decisions and records need of a pod: its names and UID, labels,
// owners, annotations that decide (Keeps, and of AppArmor), priority, resources, volumes that lie
// on the node's disks, where it may run, what of a node it needs (host ports, sysctls, AppArmor),
// phase with its reason (a failed pod was evicted or not) and QoS class. It shares maps and
// pointers with p, but none of what is added up.
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
			HostNetwork: p.Spec.HostNetwork, HostIPC: p.Spec.HostIPC, RestartPolicy: p.Spec.RestartPolicy,
			RuntimeClassName:  p.Spec.RuntimeClassName,
			PriorityClassName: p.Spec.PriorityClassName, Priority: p.Spec.Priority,
			PreemptionPolicy:              p.Spec.PreemptionPolicy,
			TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds, Overhead: p.Spec.Overhead,
			Resources:           p.Spec.Resources.DeepCopy(), // libraries add to its quantities
			Containers:          trimContainers(p.Spec.Containers, p.Spec.HostNetwork),
			InitContainers:      trimContainers(p.Spec.InitContainers, p.Spec.HostNetwork),
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
	return out
}

func keptAnnotations(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(key, _ string) bool {
		return !Keeps(key) && !appArmors(key)
	})
	return maps.Clone(out) // as small as it is now
}

func appArmors(annotation string) bool {
	return strings.HasPrefix(annotation, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
}

// trimContainers keeps of ports those of the host, which of a pod in the host's network are all.
func trimContainers(all []v1.Container, hostNetwork bool) []v1.Container {
	var out []v1.Container
	for i := range all {
		c := &all[i]
		resources := v1.ResourceRequirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits}
		kept := v1.Container{
			Name: c.Name, Resources: resources, RestartPolicy: c.RestartPolicy,
			SecurityContext: trimSecurity(c.SecurityContext),
		}
		for _, port := range c.Ports {
			if port.HostPort != 0 || hostNetwork {
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

// trimSecurity keeps of what a container may do the one thing that a node may not be able to.
func trimSecurity(c *v1.SecurityContext) *v1.SecurityContext {
	if c == nil || c.AppArmorProfile == nil {
		return nil
	}
	return &v1.SecurityContext{AppArmorProfile: c.AppArmorProfile}
}

// trimEphemeral keeps those that a node may not be able to run.
func trimEphemeral(all []v1.EphemeralContainer) (out []v1.EphemeralContainer) {
	for i := range all {
		if c := trimSecurity(all[i].SecurityContext); c != nil {
			common := v1.EphemeralContainerCommon{Name: all[i].Name, SecurityContext: c}
			out = append(out, v1.EphemeralContainer{EphemeralContainerCommon: common})
		}
	}
	return slices.Clip(out)
}

// trimVolumes keeps the volumes that lie on the node's disks or in its memory, of most no more than
// that they are there.
func trimVolumes(all []v1.Volume) []v1.Volume {
	var out []v1.Volume
	for i := range all {
		v := &all[i]
		kept := v1.Volume{Name: v.Name}
		switch {
		case v.EmptyDir != nil:
			kept.EmptyDir = v.EmptyDir
			// which writes what it returns into the quantity: now, before others read it
			_ = v.EmptyDir.SizeLimit.String()
		case v.HostPath != nil:
			kept.HostPath = v.HostPath
		case v.ConfigMap != nil:
			kept.ConfigMap = &v1.ConfigMapVolumeSource{LocalObjectReference: v.ConfigMap.LocalObjectReference}
		case v.GitRepo != nil:
			kept.GitRepo = &v1.GitRepoVolumeSource{Repository: v.GitRepo.Repository}
		default:
			continue
		}
		out = append(out, kept)
	}
	return slices.Clip(out)
}

// Keeps reports whether an annotation is one that decides.
func Keeps(annotation string) bool {
	return strings.HasPrefix(annotation, "jettison/") ||
		strings.HasPrefix(annotation, "kubernetes.io/config.")
}

// location is shared by all times.
var location = reflect.TypeFor[*time.Location]()

// Size is about how many bytes of memory an object takes, with everything that it points to.
func Size(p *v1.Pod) int {
	return int(reflect.TypeFor[v1.Pod]().Size()) + beyond(reflect.ValueOf(p).Elem())
}

// beyond is what a value points to, its own size not included.
func beyond(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Pointer:
		if v.IsNil() || v.Type() == location {
			return 0
		}
		return int(v.Type().Elem().Size()) + beyond(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			n += beyond(v.Field(i))
		}
	case reflect.Slice:
		n = v.Cap() * int(v.Type().Elem().Size())
		if k := v.Type().Elem().Kind(); k < reflect.Array { // numbers
			return n
		}
		for i := range v.Len() {
			n += beyond(v.Index(i))
		}
	case reflect.Map:
		if v.IsNil() {
			return 0
		}
		// Go's maps come in groups of eight slots, and a small one is one group.
		n = 48 + (v.Len()+7)/8*8*int(v.Type().Key().Size()+v.Type().Elem().Size()+1)
		for it := v.MapRange(); it.Next(); {
			n += beyond(it.Key()) + beyond(it.Value())
		}
	}
	return n
}
