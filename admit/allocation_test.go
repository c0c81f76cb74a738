package admit

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helper "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"

	"jettison/stats"
)

// For any pod that a kubelet runs: whatever a resize writes to the spec, and whichever containers
// have started, the granted pod requests no more than the kubelet allocated, also without its status.
func TestGrantedPodStaysWithinTheTotal(t *testing.T) {
	memory := func(t *rapid.T, name string) v1.ResourceList {
		q := resource.NewQuantity(rapid.SampledFrom([]int64{0, 1, 3, 10, 50}).Draw(t, name), resource.DecimalSI)
		return v1.ResourceList{v1.ResourceMemory: *q}
	}
	rapid.Check(t, func(t *rapid.T) {
		allocated, always := &v1.Pod{}, v1.ContainerRestartPolicyAlways
		allocated.Spec.Overhead = memory(t, "overhead")
		if rapid.IntRange(0, 4).Draw(t, "pod-level") == 0 {
			allocated.Spec.Resources = &v1.ResourceRequirements{Requests: memory(t, "pod-level request")}
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
			allocated.Spec.Containers = append(allocated.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Resources: v1.ResourceRequirements{Requests: memory(t, "request")}})
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "init containers") {
			c := v1.Container{Name: fmt.Sprint("i", i), Resources: v1.ResourceRequirements{Requests: memory(t, "request")}}
			if rapid.Bool().Draw(t, "sidecar") {
				c.RestartPolicy = &always
			}
			allocated.Spec.InitContainers = append(allocated.Spec.InitContainers, c)
		}
		p := allocated.DeepCopy()
		p.Status.AllocatedResources = helper.PodRequests(allocated.DeepCopy(), helper.PodResourcesOptions{})
		resize := func(list []v1.Container) (states []v1.ContainerStatus) {
			for i := range list {
				if rapid.Bool().Draw(t, "started") {
					states = append(states, v1.ContainerStatus{Name: list[i].Name, AllocatedResources: list[i].Resources.Requests})
				}
				if rapid.Bool().Draw(t, "resized") {
					list[i].Resources.Requests = memory(t, "resize")
				}
			}
			return states
		}
		p.Status.ContainerStatuses, p.Status.InitContainerStatuses = resize(p.Spec.Containers), resize(p.Spec.InitContainers)
		granted := stats.Granted(p).DeepCopy()
		granted.Status = v1.PodStatus{}
		if got, most := helper.PodRequests(granted, helper.PodResourcesOptions{}), p.Status.AllocatedResources; got.Memory().Cmp(*most.Memory()) > 0 {
			t.Fatalf("the granted pod requests %s, want at most %s: %+v", got.Memory(), most.Memory(), granted.Spec)
		}
	})
}
