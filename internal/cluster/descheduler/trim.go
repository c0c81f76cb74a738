package descheduler

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decides are the annotations of objects that a plan reads.
func decides(key string) bool {
	return strings.HasPrefix(key, "descheduler.alpha.kubernetes.io/") || strings.HasPrefix(key, "kubernetes.io/config.") ||
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
		for _, list := range [][]v1.Container{o.Spec.Containers, o.Spec.InitContainers} {
			for i := range list {
				c := &list[i]
				list[i] = v1.Container{Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
			}
		}
		o.Spec.EphemeralContainers = nil
		for i := range o.Spec.Volumes {
			v := &o.Spec.Volumes[i]
			o.Spec.Volumes[i] = v1.Volume{Name: v.Name, VolumeSource: v1.VolumeSource{
				HostPath: v.HostPath, EmptyDir: v.EmptyDir, PersistentVolumeClaim: v.PersistentVolumeClaim, Ephemeral: v.Ephemeral,
			}}
		}
	case *v1.Node:
		o.Status.Images, o.Status.VolumesAttached, o.Status.VolumesInUse = nil, nil, nil
	}
	return in, nil
}
