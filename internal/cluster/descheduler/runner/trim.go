package runner

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decides are the annotations of objects that a plan reads.
func decides(key string) bool {
	return strings.HasPrefix(key, "descheduler.alpha.kubernetes.io/") ||
		strings.HasPrefix(key, "kubernetes.io/config.") ||
		strings.HasPrefix(key, "volume.kubernetes.io/")
}

// trim drops what no plan reads, so that it is not kept: most of a pod is.
func trim(in any) (any, error) {
	if o, ok := in.(metav1.Object); ok {
		o.SetManagedFields(nil)
		kept := map[string]string{}
		for key, value := range o.GetAnnotations() {
			if decides(key) {
				kept[key] = value
			}
		}
		if len(kept) == 0 {
			kept = nil
		}
		o.SetAnnotations(kept)
	}
	switch o := in.(type) {
	case *v1.Pod:
		o.GenerateName, o.Spec, o.Status = "", spec(o), status(&o.Status)
	case *v1.Node:
		o.Status.Images, o.Status.VolumesAttached, o.Status.VolumesInUse = nil, nil, nil
	}
	return in, nil
}

// spec of a pod, in lists without room to grow.
func spec(p *v1.Pod) v1.PodSpec {
	s := &p.Spec
	return v1.PodSpec{
		NodeName: s.NodeName, PriorityClassName: s.PriorityClassName, Priority: s.Priority,
		NodeSelector: s.NodeSelector, Affinity: s.Affinity,
		Tolerations:               only(s.Tolerations, nil),
		TopologySpreadConstraints: only(s.TopologySpreadConstraints, nil),
		ResourceClaims:            s.ResourceClaims, Overhead: s.Overhead, Resources: s.Resources,
		Containers: containers(p, s.Containers), InitContainers: containers(p, s.InitContainers),
		Volumes: only(s.Volumes, func(v *v1.Volume) bool {
			return v.HostPath != nil || v.EmptyDir != nil || v.PersistentVolumeClaim != nil ||
				v.Ephemeral != nil
		}),
	}
}

// containers have limits only where nobody has said of which class the pod is.
func containers(p *v1.Pod, in []v1.Container) []v1.Container {
	out := only(in, nil)
	for i := range out {
		c := &in[i]
		r := v1.ResourceRequirements{Requests: c.Resources.Requests}
		if p.Status.QOSClass == "" {
			r.Limits = c.Resources.Limits
		}
		ports := only(c.Ports, func(port *v1.ContainerPort) bool { return port.HostPort > 0 })
		out[i] = v1.Container{Name: c.Name, Image: c.Image, Ports: ports, Resources: r,
			RestartPolicy: c.RestartPolicy}
	}
	return out
}

func status(s *v1.PodStatus) v1.PodStatus {
	out := v1.PodStatus{
		Phase: s.Phase, Reason: s.Reason, QOSClass: s.QOSClass, StartTime: s.StartTime,
		Conditions:                 only(s.Conditions, nil),
		ContainerStatuses:          ofContainers(s.ContainerStatuses),
		InitContainerStatuses:      ofContainers(s.InitContainerStatuses),
		EphemeralContainerStatuses: ofContainers(s.EphemeralContainerStatuses),
	}
	for i := range out.Conditions {
		out.Conditions[i].Message = ""
	}
	return out
}

func ofContainers(in []v1.ContainerStatus) []v1.ContainerStatus {
	out := only(in, nil)
	for i := range out {
		s := &in[i]
		out[i] = v1.ContainerStatus{Name: s.Name, RestartCount: s.RestartCount,
			State: v1.ContainerState{Waiting: s.State.Waiting, Terminated: s.State.Terminated}}
	}
	return out
}

// only are those that are wanted; nil: all.
func only[T any](in []T, wanted func(*T) bool) []T {
	count := 0
	for i := range in {
		if wanted == nil || wanted(&in[i]) {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	out := make([]T, 0, count)
	for i := range in {
		if wanted == nil || wanted(&in[i]) {
			out = append(out, in[i])
		}
	}
	return out
}
