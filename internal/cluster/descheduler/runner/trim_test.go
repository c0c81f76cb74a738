package runner

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// In large clusters the fields that no plan reads would be most of the memory.
func TestTrimKeepsFieldsUsedByPlans(t *testing.T) {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	p := &v1.Pod{
		Spec: v1.PodSpec{
			NodeName: "n", ServiceAccountName: "s", SecurityContext: &v1.PodSecurityContext{}, Tolerations: []v1.Toleration{{Key: "t"}},
			Volumes: []v1.Volume{{Name: "settings", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
				{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
			Containers: []v1.Container{{Image: "i", Args: []string{"a"}, Resources: v1.ResourceRequirements{Requests: list, Limits: list},
				Ports: []v1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 81}}}},
		},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, PodIP: "10.0.0.1", QOSClass: v1.PodQOSGuaranteed,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, Message: "m"}},
			ContainerStatuses: []v1.ContainerStatus{{ImageID: "i", RestartCount: 3,
				State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}},
		},
	}
	classless := p.DeepCopy()
	classless.Status.QOSClass = ""
	for _, pod := range []*v1.Pod{p, classless} {
		if _, err := trim(pod); err != nil {
			t.Fatal(err)
		}
	}
	s, status := &p.Spec, &p.Status
	if s.NodeName != "n" || len(s.Tolerations) != 1 || len(s.Volumes) != 1 || s.Volumes[0].Name != "data" || s.SecurityContext != nil {
		t.Errorf("spec = %+v, want only node name, tolerations and the emptyDir volume", s)
	}
	c := s.Containers[0]
	if c.Image != "i" || c.Args != nil || len(c.Ports) != 1 || c.Ports[0].HostPort != 81 || len(c.Resources.Requests) != 1 || c.Resources.Limits != nil {
		t.Errorf("container = %+v, want only image, host port and requests", c)
	}
	if len(classless.Spec.Containers[0].Resources.Limits) != 1 {
		t.Error("limits of a pod without QoS class are removed, want them kept: they determine the class")
	}
	if k := status.ContainerStatuses[0]; k.ImageID != "" || k.RestartCount != 3 || k.State.Waiting == nil || status.PodIP != "" ||
		status.Phase != v1.PodRunning || len(status.Conditions) != 1 || status.Conditions[0].Message != "" {
		t.Errorf("status = %+v, want phase, conditions without messages and container states", status)
	}
}
