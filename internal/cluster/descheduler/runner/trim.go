package runner

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// planAnnotations are the annotations that plans read.
var planAnnotations = []string{
	"descheduler.alpha.kubernetes.io/evict", "descheduler.alpha.kubernetes.io/prefer-no-eviction",
	requestOnly, inProgress, "kubernetes.io/config.source", v1.MirrorPodAnnotationKey,
	"volume.kubernetes.io/selected-node",
}

// maxAnnotation limits values of annotations. Plans compare them with node names and shorter texts.
const maxAnnotation = 256

// trim removes fields that no plan reads before an informer caches an object: most of a pod.
func trim(in any) (any, error) {
	if o, ok := in.(metav1.Object); ok {
		o.SetManagedFields(nil)
		var kept map[string]string
		for _, key := range planAnnotations {
			if value, ok := o.GetAnnotations()[key]; ok {
				if kept == nil {
					kept = map[string]string{}
				}
				kept[key] = strings.Clone(value[:min(len(value), maxAnnotation)])
			}
		}
		o.SetAnnotations(kept)
	}
	switch o := in.(type) {
	case *v1.Pod:
		o.GenerateName, o.Spec, o.Status = "", trimSpec(o), trimStatus(&o.Status)
		bound(o)
	case *v1.PersistentVolumeClaim:
		o.Labels, o.OwnerReferences, o.Finalizers = nil, nil, nil
		o.Spec = v1.PersistentVolumeClaimSpec{StorageClassName: o.Spec.StorageClassName,
			VolumeName: o.Spec.VolumeName}
		o.Status = v1.PersistentVolumeClaimStatus{}
	case *policyv1.PodDisruptionBudget:
		o.Labels, o.OwnerReferences, o.Finalizers, o.Status.DisruptedPods = nil, nil, nil, nil
		boundSelector(o)
	case *v1.Node:
		o.Status.Images, o.Status.VolumesAttached, o.Status.VolumesInUse = nil, nil, nil
	}
	return in, nil
}

// trimSpec returns the fields of a spec that plans read, in slices without spare capacity.
func trimSpec(p *v1.Pod) v1.PodSpec {
	s := &p.Spec
	return v1.PodSpec{
		NodeName: s.NodeName, SchedulerName: s.SchedulerName, PriorityClassName: s.PriorityClassName, Priority: s.Priority,
		NodeSelector: s.NodeSelector, Affinity: s.Affinity,
		Tolerations:               s.Tolerations, // bound copies them
		TopologySpreadConstraints: filtered(s.TopologySpreadConstraints, nil),
		ResourceClaims:            s.ResourceClaims, Overhead: s.Overhead, Resources: s.Resources,
		Containers: trimContainers(p, s.Containers), InitContainers: trimContainers(p, s.InitContainers),
		Volumes: filtered(s.Volumes, func(v *v1.Volume) bool {
			return v.HostPath != nil || v.EmptyDir != nil || v.PersistentVolumeClaim != nil ||
				v.Ephemeral != nil
		}),
	}
}

// trimContainers keeps limits only for a pod without a QoS class in its status: plans compute the
// class from them.
func trimContainers(p *v1.Pod, in []v1.Container) []v1.Container {
	out := filtered(in, nil)
	for i := range out {
		c := &in[i]
		r := v1.ResourceRequirements{Requests: c.Resources.Requests}
		if p.Status.QOSClass == "" {
			r.Limits = c.Resources.Limits
		}
		ports := filtered(c.Ports, func(port *v1.ContainerPort) bool { return port.HostPort > 0 })
		out[i] = v1.Container{Name: c.Name, Image: c.Image, Ports: ports, Resources: r,
			RestartPolicy: c.RestartPolicy}
	}
	return out
}

func trimStatus(s *v1.PodStatus) v1.PodStatus {
	out := v1.PodStatus{
		Phase: s.Phase, Reason: s.Reason, QOSClass: s.QOSClass, StartTime: s.StartTime,
		Conditions:                 filtered(s.Conditions, nil),
		ContainerStatuses:          trimContainerStatuses(s.ContainerStatuses),
		InitContainerStatuses:      trimContainerStatuses(s.InitContainerStatuses),
		EphemeralContainerStatuses: trimContainerStatuses(s.EphemeralContainerStatuses),
	}
	for i := range out.Conditions {
		out.Conditions[i].Message = ""
	}
	return out
}

func trimContainerStatuses(in []v1.ContainerStatus) []v1.ContainerStatus {
	out := filtered(in, nil)
	for i := range out {
		s := &in[i]
		out[i] = v1.ContainerStatus{Name: s.Name, RestartCount: s.RestartCount, State: trimState(&s.State)}
	}
	return out
}

// trimState keeps reasons and exit codes. A container writes its message, and a kubelet stores up to
// 12 KiB of them in a pod (pkg/kubelet/container/runtime.go MaxPodTerminationMessageLogLength,
// v1.37.2).
func trimState(s *v1.ContainerState) (out v1.ContainerState) {
	if w := s.Waiting; w != nil {
		out.Waiting = &v1.ContainerStateWaiting{Reason: w.Reason}
	}
	if t := s.Terminated; t != nil {
		out.Terminated = &v1.ContainerStateTerminated{Reason: t.Reason, ExitCode: t.ExitCode}
	}
	return out
}

// filtered returns the items that wanted selects in a new slice; wanted nil: all.
func filtered[T any](in []T, wanted func(*T) bool) []T {
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
