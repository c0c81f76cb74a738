package stats

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resources reads "cpu=1 memory=1Gi"; "-" is a missing list.
func resources(text string) v1.ResourceList {
	if text == "-" {
		return nil
	}
	out := v1.ResourceList{}
	for _, f := range strings.Fields(text) {
		name, value, _ := strings.Cut(f, "=")
		out[v1.ResourceName(name)] = resource.MustParse(value)
	}
	return out
}

func written(list v1.ResourceList) string {
	var out []string
	for _, name := range []v1.ResourceName{"cpu", "memory", "ephemeral-storage"} {
		if q, ok := list[name]; ok {
			out = append(out, string(name)+"="+q.String())
		}
	}
	return strings.Join(out, " ")
}

// The kubelet's allocation replaces the spec of a resize that it defers or rejects.
func TestGrantedContainers(t *testing.T) {
	for _, c := range []struct {
		name             string
		requests, limits string // of the spec
		allocated        string
		applied, capped  string // status.resources; "none": no such field
		want, wantLimits string
		complete         bool
	}{
		{"no status", "memory=1Ti", "-", "-", "none", "-", "memory=1Ti", "", false},
		{"deferred", "memory=1Ti cpu=2", "-", "memory=100Mi cpu=1", "memory=100Mi", "-", "cpu=1 memory=100Mi", "", true},
		{"allocated and not yet applied", "memory=2Gi", "memory=2Gi", "memory=2Gi", "memory=1Gi", "memory=1Gi", "memory=2Gi", "memory=1Gi", true},
		{"reduced and not yet applied", "memory=1Gi", "memory=1Gi", "memory=1Gi", "memory=2Gi", "memory=2Gi", "memory=1Gi", "memory=2Gi", true},
		{"other resources stay", "memory=1Ti ephemeral-storage=1Gi", "-", "memory=1Gi", "none", "-", "memory=1Gi ephemeral-storage=1Gi", "", true},
		{"only what was applied, less", "memory=1Ti", "-", "-", "memory=1Gi", "-", "memory=1Gi", "", true},
		{"only what was applied, more", "memory=1Gi", "-", "-", "memory=2Gi", "-", "memory=1Gi", "", true},
		// 0 and not missing: the default of a missing request is the limit
		{"a first request", "memory=1Ti", "memory=1Ti", "-", "-", "-", "memory=0", "memory=0", true},
		{"a second kind of request", "memory=1Ti cpu=1", "-", "cpu=1", "cpu=1", "-", "cpu=1 memory=0", "", true},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: resources(c.requests), Limits: resources(c.limits)}}}}}
		s := v1.ContainerStatus{Name: "c", AllocatedResources: resources(c.allocated)}
		if c.applied != "none" {
			s.Resources = &v1.ResourceRequirements{Requests: resources(c.applied), Limits: resources(c.capped)}
		}
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "other"}, s}
		// the same as a sidecar
		always := v1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []v1.Container{p.Spec.Containers[0]}
		p.Spec.InitContainers[0].RestartPolicy = &always
		p.Status.InitContainerStatuses = []v1.ContainerStatus{s}
		before, class := p.DeepCopy().String(), QOSOf(p)
		g := Granted(p)
		for _, of := range [][]v1.Container{g.Spec.Containers, g.Spec.InitContainers} {
			if got, limits := written(of[0].Resources.Requests), written(of[0].Resources.Limits); got != c.want || limits != c.wantLimits {
				t.Errorf("%s: granted requests %q, limits %q, want %q, %q", c.name, got, limits, c.want, c.wantLimits)
			}
		}
		if got := Allocated(p); got != c.complete {
			t.Errorf("%s: Allocated() = %v, want %v", c.name, got, c.complete)
		}
		if got := QOSOf(g); got != class {
			t.Errorf("%s: class of the granted pod = %s, want %s", c.name, got, class)
		}
		if after := p.String(); after != before {
			t.Errorf("%s: Granted() changed the pod to %s\nfrom %s", c.name, after, before)
		}
	}
}

// A pod-level request is the pod's allocation without the overhead, which the kubelet adds to it.
func TestGrantedPodLevel(t *testing.T) {
	for _, c := range []struct{ requests, overhead, total, want string }{
		{"memory=1Ti cpu=1", "-", "-", "cpu=1 memory=1Ti"},
		{"memory=1Ti cpu=1", "-", "memory=1Gi cpu=1", "cpu=1 memory=1Gi"},
		{"memory=1Ti cpu=1", "memory=24Mi", "memory=1Gi cpu=1", "cpu=1 memory=1000Mi"},
		{"memory=1Ti", "memory=2Gi", "memory=1Gi", "memory=0"},
		{"cpu=8", "-", "memory=1Gi cpu=1", "cpu=1"},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{Overhead: resources(c.overhead), Resources: &v1.ResourceRequirements{Requests: resources(c.requests)}}}
		p.Status.AllocatedResources = resources(c.total)
		if got := written(Granted(p).Spec.Resources.Requests); got != c.want {
			t.Errorf("pod-level requests %s, overhead %s, allocated %s: granted %q, want %q", c.requests, c.overhead, c.total, got, c.want)
		}
	}
}

// A container that never started has no status. Only the pod's total then states the allocation.
func TestAllocatedWithoutAContainersStatus(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "b"}}}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a", AllocatedResources: resources("memory=1Gi")}, {Name: "b"}}
	if Allocated(p) {
		t.Error("Allocated() of a pod with a container that never started = true, want false")
	}
	if _, ok := AllocatedTotal(p, v1.ResourceMemory); ok {
		t.Error("AllocatedTotal() without a total is present, want absent")
	}
	p.Status.AllocatedResources = resources("memory=2Gi ephemeral-storage=1Gi")
	if !Allocated(p) {
		t.Error("Allocated() of a pod with a total = false, want true")
	}
	for name, want := range map[v1.ResourceName]string{"memory": "2Gi", "cpu": "0", "ephemeral-storage": ""} {
		q, ok := AllocatedTotal(p, name)
		if got := q.String(); ok != (want != "") || ok && got != want {
			t.Errorf("AllocatedTotal(%s) = %s, %v, want %q", name, got, ok, want)
		}
	}
}

// The containers that never started request at most the rest of the pod's total. Init containers run
// one after another, with the sidecars before them.
func TestGrantedUpToTheTotal(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	for _, c := range []struct{ name, total, overhead, a, b, sidecar, init, ran, want string }{
		{"no total", "-", "-", "1Gi", "6Gi", "1Gi", "9Gi", "-", "1Gi 6Gi 1Gi 9Gi"},
		{"as allocated", "3Gi", "-", "1Gi", "1Gi", "1Gi", "2Gi", "-", "1Gi 1Gi 1Gi 2Gi"},
		{"one resized", "3Gi", "-", "1Gi", "6Gi", "1Gi", "1Gi", "-", "1Gi 2Gi 0 1Gi"},
		{"the sidecar resized", "3Gi", "-", "1Gi", "1Gi", "9Gi", "1Gi", "-", "1Gi 1Gi 1Gi 1Gi"},
		{"the init container resized", "3Gi", "-", "1Gi", "1Gi", "1Gi", "9Gi", "-", "1Gi 1Gi 1Gi 2Gi"},
		{"overhead", "3Gi", "1Gi", "1Gi", "6Gi", "0", "9Gi", "-", "1Gi 1Gi 0 2Gi"},
		{"a first request", "0", "-", "0", "6Gi", "1Gi", "9Gi", "-", "0 0 0 0"},
		{"an init container that ran, the sidecar resized", "3Gi", "-", "1Gi", "0", "2Gi", "9Gi", "3Gi", "1Gi 0 2Gi 1Gi"},
	} {
		list := func(text string) v1.ResourceList {
			if text == "-" {
				return nil
			}
			return resources("memory=" + text)
		}
		container := func(name, request string) v1.Container {
			return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list(request)}}
		}
		p := &v1.Pod{Spec: v1.PodSpec{
			Containers:     []v1.Container{container("a", "7Ti"), container("b", c.b)},
			InitContainers: []v1.Container{container("sidecar", c.sidecar), container("init", c.init)},
			Overhead:       list(c.overhead),
		}}
		p.Spec.InitContainers[0].RestartPolicy = &always
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a", AllocatedResources: list(c.a)}, {Name: "b"}}
		if c.ran != "-" {
			p.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "init", AllocatedResources: list(c.ran)}}
		}
		p.Status.AllocatedResources = list(c.total)
		before, g := p.DeepCopy().String(), Granted(p)
		var got []string
		for _, c := range append(slices.Clone(g.Spec.Containers), g.Spec.InitContainers...) {
			got = append(got, c.Resources.Requests.Memory().String())
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%s: granted requests %s, want %s", c.name, text, c.want)
		}
		if after := p.String(); after != before {
			t.Errorf("%s: Granted() changed the pod to %s\nfrom %s", c.name, after, before)
		}
	}
}
