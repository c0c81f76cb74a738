package admit

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The configuration overrides the labels that a kubelet sets, except the label of the operating
// system.
func TestLabels(t *testing.T) {
	own := map[string]string{"zone": "a", v1.LabelHostname: "other", v1.LabelOSStable: "dummyOS"}
	want := map[string]string{
		v1.LabelHostname: "other", v1.LabelArchStable: "arm64", "beta.kubernetes.io/arch": "arm64", "beta.kubernetes.io/os": "linux",
		v1.LabelOSStable: "linux", "zone": "a",
	}
	if got := Labels("here", "arm64", own); !maps.Equal(got, want) {
		t.Errorf("Labels() = %v, want %v", got, want)
	}
	if got := Labels("here", "arm64", nil)[v1.LabelHostname]; got != "here" {
		t.Errorf("hostname label = %q, want %q", got, "here")
	}
}

// The errors for invalid sysctls are the kubelet's (TestNewAllowlist).
func TestInvalidSysctls(t *testing.T) {
	const form = `must have at most 253 characters and match regex ([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]`
	long := "net." + strings.Repeat("a", 250)
	for pattern, want := range map[string]string{
		"":                  `sysctl "" ` + form,
		"_foo":              `sysctl "_foo" ` + form,
		"kernel.msg*x":      `sysctl "kernel.msg*x" ` + form,
		long:                `sysctl "` + long + `" ` + form,
		"foo":               `the sysctls "foo" are not known to be namespaced`,
		"vm/swappiness":     `the sysctls "vm.swappiness" are not known to be namespaced`,
		"*":                 `the sysctls "*" are not known to be namespaced`,
		"net*":              `the sysctls "net" are not known to be namespaced`,
		"net/ipv4/conf/a.b": "",
		"user.*":            "",
	} {
		got := ""
		if _, err := NewSysctls([]string{pattern}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("error for sysctl %q = %s\nwant %s", pattern, got, want)
		}
	}
}

// Requests are what the kubelet allocated, whatever the spec asks for or is applied already.
func TestRequestsAreTheAllocation(t *testing.T) {
	list := func(text string) v1.ResourceList { return v1.ResourceList{v1.ResourceMemory: resource.MustParse(text)} }
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list("10")}}}}}
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", AllocatedResources: list("30"),
		Resources: &v1.ResourceRequirements{Requests: list("20")}}}
	p := PodAttributes{Pod: pod}
	if got := HeldBy(p).Requests[v1.ResourceMemory]; got != 30 {
		t.Errorf("memory request = %d, want 30", got)
	}
	if r := Admit(p, NodeState{Allocatable: list("30")}); !r.Admit {
		t.Errorf("Admit() on a node with exactly the request free = %+v, want admitted", r)
	}
	// a container that never started has no allocation of its own
	pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "d", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourceCPU: resource.MustParse("1"), "example.com/gpu": resource.MustParse("1")}}})
	pod.Status.AllocatedResources = list("40")
	if got := HeldBy(p).Requests; got[v1.ResourceMemory] != 40 || got[v1.ResourceCPU] != 0 || got["example.com/gpu"] != 1 {
		t.Errorf("requests with a total = %v, want memory 40, no cpu and 1 GPU", got)
	}
}

// PodRequests (v0.37.2) adds the overhead in place to a pod-level request that is stored as a
// decimal. Decisions must not accumulate it.
func TestDecisionsDoNotChangeRequests(t *testing.T) {
	list := v1.ResourceList{"memory": resource.MustParse("1.5Gi")}
	pod := &v1.Pod{Spec: v1.PodSpec{Overhead: list.DeepCopy(), Resources: &v1.ResourceRequirements{Requests: list.DeepCopy()}}}
	n := NodeState{Allocatable: v1.ResourceList{"memory": resource.MustParse("3Gi")}}
	for range 3 {
		p := PodAttributes{Pod: pod}
		if got := HeldBy(p).Requests["memory"]; got != 3<<30 {
			t.Fatalf("memory request = %d, want %d", got, 3<<30)
		}
		if r := Admit(p, n); !r.Admit {
			t.Fatalf("Admit() on a node with exactly the request free = %+v, want admitted", r)
		}
	}
}

// Defaults are not written into the caller's object.
func TestPodObjectIsNotChanged(t *testing.T) {
	limits := v1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("-1")}
	pod := &v1.Pod{Spec: v1.PodSpec{HostNetwork: true, PriorityClassName: "system-node-critical", Overhead: limits.DeepCopy(),
		Resources: &v1.ResourceRequirements{Limits: limits.DeepCopy()},
		Containers: []v1.Container{{Ports: []v1.ContainerPort{{ContainerPort: 80}},
			Resources: v1.ResourceRequirements{Limits: limits.DeepCopy(), Requests: v1.ResourceList{"memory": resource.MustParse("-1")}}}}}}
	pod.Annotations = map[string]string{annotationSource: "file", annotationMirror: "x"}
	before := pod.DeepCopy().String()
	h := HeldBy(PodAttributes{Pod: pod})
	if after := pod.String(); before != after {
		t.Errorf("pod object was changed to %s\nfrom %s", after, before)
	}
	if h.Static || h.Priority.V != 2_000_001_000 || len(h.Ports) != 1 || h.Ports[0].Port != 80 || h.Requests["cpu"] != 2000 || len(h.Requests) != 1 {
		t.Errorf("HeldBy() = %+v, want no static pod, priority 2000001000, port 80 and cpu 2000", h)
	}
}

// One snapshot and one object serve concurrent decisions; the race detector checks this.
func TestSnapshotServesConcurrentDecisions(t *testing.T) {
	n := full()
	list := v1.ResourceList{"cpu": resource.MustParse("1.5Ki"), "memory": resource.MustParse("1.5Gi")}
	n.Allocatable = v1.ResourceList{"cpu": resource.MustParse("3.5Ki"), "memory": resource.MustParse("6.5Gi"), "pods": resource.MustParse("110")}
	priority := int32(systemCriticalPriority)
	p := PodAttributes{Pod: &v1.Pod{Spec: v1.PodSpec{
		Priority: &priority, Overhead: list.DeepCopy(), Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}},
		Resources:  &v1.ResourceRequirements{Requests: list.DeepCopy(), Limits: list.DeepCopy()},
		Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: list.DeepCopy()}}},
	}}}
	want, _ := Preempt(p, n)
	if len(want.Victims) == 0 {
		t.Fatal("the plan of the first decision has no victims")
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 20 {
				plan, _ := Preempt(p, n)
				if plan.Outcome(p, n, nil).Admit || !slices.Equal(uids(plan.Victims), uids(want.Victims)) {
					t.Errorf("plan of a concurrent decision = %s, want victims %v", plan.text(), uids(want.Victims))
				}
				HeldBy(p)
			}
		})
	}
	wait.Wait()
}
