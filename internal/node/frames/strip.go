package frames

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/internal/base/podjson"
)

// strip returns the part of a pod object that decisions use: no environment, no commands, no
// labels. The result shares quantities and lists with the object.
func strip(p *v1.Pod) v1.Pod {
	out := v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID},
		Spec: v1.PodSpec{
			Priority: p.Spec.Priority, PriorityClassName: p.Spec.PriorityClassName,
			TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
			Resources:                     p.Spec.Resources, Overhead: p.Spec.Overhead,
			Tolerations: p.Spec.Tolerations,
			Containers:  make([]v1.Container, len(p.Spec.Containers)), InitContainers: make([]v1.Container,
				len(p.Spec.InitContainers)),
		},
		Status: v1.PodStatus{Phase: p.Status.Phase, QOSClass: p.Status.QOSClass},
	}
	for key, value := range p.Annotations {
		if podjson.IsKeptAnnotation(key) {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[key] = value
		}
	}
	for i := range p.Spec.Containers {
		out.Spec.Containers[i] = stripContainer(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		out.Spec.InitContainers[i] = stripContainer(&p.Spec.InitContainers[i])
	}
	podjson.KeepAllocation(&out, p)
	for i := range p.Spec.Volumes {
		out.Spec.Volumes = append(out.Spec.Volumes, stripVolume(&p.Spec.Volumes[i]))
	}
	return out
}

func stripContainer(c *v1.Container) v1.Container {
	out := v1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	for i := range c.VolumeMounts {
		if m := &c.VolumeMounts[i]; !m.ReadOnly {
			out.VolumeMounts = append(out.VolumeMounts, v1.VolumeMount{Name: m.Name})
		}
	}
	return out
}

// stripVolume returns the name and type of a volume.
func stripVolume(v *v1.Volume) v1.Volume {
	out := v1.Volume{Name: v.Name}
	switch {
	case v.EmptyDir != nil:
		out.EmptyDir = &v1.EmptyDirVolumeSource{Medium: v.EmptyDir.Medium,
			SizeLimit: v.EmptyDir.SizeLimit}
	case v.HostPath != nil:
		out.HostPath = &v1.HostPathVolumeSource{}
	case v.GitRepo != nil:
		out.GitRepo = &v1.GitRepoVolumeSource{}
	case v.ConfigMap != nil:
		out.ConfigMap = &v1.ConfigMapVolumeSource{}
	case v.Secret != nil:
		out.Secret = &v1.SecretVolumeSource{}
	case v.Projected != nil:
		out.Projected = &v1.ProjectedVolumeSource{}
	case v.PersistentVolumeClaim != nil:
		out.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{
			ReadOnly: v.PersistentVolumeClaim.ReadOnly}
	case v.Ephemeral != nil:
		out.Ephemeral = &v1.EphemeralVolumeSource{}
	}
	return out
}
