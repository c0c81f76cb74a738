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

// Trim is a new object with what decisions and records need of a pod: its names and UID, labels, owners, annotations that decide (Keeps),
// priority, resources, volumes that lie on the node's disks, where it may run, phase with its reason (a failed pod was evicted or not) and
// QoS class. It shares maps and pointers with p.
func Trim(p *v1.Pod) *v1.Pod {
	out := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID: p.UID, Namespace: p.Namespace, Name: p.Name, Labels: p.Labels,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp, OwnerReferences: p.OwnerReferences,
		},
		Spec: v1.PodSpec{
			NodeName: p.Spec.NodeName, NodeSelector: p.Spec.NodeSelector, Tolerations: p.Spec.Tolerations, OS: p.Spec.OS,
			HostNetwork: p.Spec.HostNetwork, RestartPolicy: p.Spec.RestartPolicy, RuntimeClassName: p.Spec.RuntimeClassName,
			PriorityClassName: p.Spec.PriorityClassName, Priority: p.Spec.Priority, PreemptionPolicy: p.Spec.PreemptionPolicy,
			TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds, Overhead: p.Spec.Overhead, Resources: p.Spec.Resources,
			Containers: trimContainers(p.Spec.Containers), InitContainers: trimContainers(p.Spec.InitContainers),
			Volumes: trimVolumes(p.Spec.Volumes),
		},
		Status: v1.PodStatus{Phase: p.Status.Phase, Reason: p.Status.Reason, QOSClass: p.Status.QOSClass},
	}
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		out.Spec.Affinity = &v1.Affinity{NodeAffinity: a.NodeAffinity}
	}
	if a := keptAnnotations(p.Annotations); len(a) > 0 {
		out.Annotations = a
	}
	return out
}

func keptAnnotations(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(key, _ string) bool { return !Keeps(key) })
	return maps.Clone(out) // as small as it is now
}

func trimContainers(all []v1.Container) []v1.Container {
	var out []v1.Container
	for i := range all {
		c := &all[i]
		resources := v1.ResourceRequirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits}
		kept := v1.Container{Name: c.Name, Resources: resources, RestartPolicy: c.RestartPolicy}
		for _, port := range c.Ports {
			if port.HostPort != 0 {
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

// trimVolumes keeps the volumes that lie on the node's disks or in its memory, of most no more than that they are there.
func trimVolumes(all []v1.Volume) []v1.Volume {
	var out []v1.Volume
	for i := range all {
		v := &all[i]
		kept := v1.Volume{Name: v.Name}
		switch {
		case v.EmptyDir != nil:
			kept.EmptyDir = v.EmptyDir
			_ = v.EmptyDir.SizeLimit.String() // which writes what it returns into the quantity: now, before others read it
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
	return strings.HasPrefix(annotation, "jettison/") || strings.HasPrefix(annotation, "kubernetes.io/config.")
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
