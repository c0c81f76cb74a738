package verdict

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The bridge waits for the sandbox of a pod that holds resources which a scheduler assigns and no
// process holds.
func TestHoldsSandboxResources(t *testing.T) {
	of := func(name v1.ResourceName) v1.ResourceList { return v1.ResourceList{name: resource.MustParse("1")} }
	for name, c := range map[string]struct {
		change func(*v1.PodSpec)
		want   bool
	}{
		"nothing":           {func(*v1.PodSpec) {}, false},
		"shares":            {func(s *v1.PodSpec) { s.Containers[0].Resources.Requests = of(v1.ResourceCPU) }, false},
		"huge pages":        {func(s *v1.PodSpec) { s.Containers[0].Resources.Limits = of("hugepages-2Mi") }, false},
		"a container's own": {func(s *v1.PodSpec) { s.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80}} }, false},
		"a port":            {func(s *v1.PodSpec) { s.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}} }, true},
		"a sidecar's port":  {func(s *v1.PodSpec) { s.InitContainers = []v1.Container{{Ports: []v1.ContainerPort{{HostPort: 80}}}} }, true},
		"the host's network": {func(s *v1.PodSpec) {
			s.HostNetwork, s.Containers[0].Ports = true, []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		}, false},
		"a device":            {func(s *v1.PodSpec) { s.Containers[0].Resources.Limits = of("nvidia.com/gpu") }, true},
		"nobody knows of its": {func(s *v1.PodSpec) { s.Containers = nil }, true},
	} {
		p := podOf(func(p *v1.Pod) { c.change(&p.Spec) })
		if got := holdsSandboxResources(p); got != c.want {
			t.Errorf("%s: sandbox resources held = %v, want %v", name, got, c.want)
		}
	}
}
