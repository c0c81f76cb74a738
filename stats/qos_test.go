package stats_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// Pod-level resources replace the containers' if they contain a supported resource. A missing
// pod-level request of a manifest is not the limit: only an API server adds it.
func TestQOSOfPodLevelResources(t *testing.T) {
	list := func(name, q string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceName(name): resource.MustParse(q)}
	}
	both := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")}
	for _, c := range []struct {
		name string
		own  *v1.ResourceRequirements
		want stats.QOSClass
	}{
		{"none", nil, stats.Burstable},
		{"empty", &v1.ResourceRequirements{}, stats.Burstable},
		{"without requests", &v1.ResourceRequirements{Requests: v1.ResourceList{}}, stats.Burstable},
		{"without limits", &v1.ResourceRequirements{Limits: v1.ResourceList{}}, stats.Burstable},
		{"of another resource", &v1.ResourceRequirements{Limits: list("ephemeral-storage", "1Gi")}, stats.Burstable},
		{"huge pages alone", &v1.ResourceRequirements{Limits: list("hugepages-2Mi", "2Mi")}, stats.BestEffort},
		{"memory", &v1.ResourceRequirements{Requests: list("memory", "1Gi")}, stats.Burstable},
		{"limits alone", &v1.ResourceRequirements{Limits: both}, stats.Burstable},
		{"limits and equal requests", &v1.ResourceRequirements{Requests: both, Limits: both}, stats.Guaranteed},
	} {
		containers := []v1.Container{{Resources: v1.ResourceRequirements{Requests: list("memory", "1Gi")}}}
		if got := stats.QOSOf(&v1.Pod{Spec: v1.PodSpec{Resources: c.own, Containers: containers}}); got != c.want {
			t.Errorf("QoS class with pod-level resources %s = %s, want %s", c.name, got, c.want)
		}
	}
}

// The expected classes are those of the kubelet's ComputePodQOS after missing requests were
// defaulted to the limits.
func TestQOSOf(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		out := v1.ResourceList{}
		for name, text := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if text != "" {
				out[name] = resource.MustParse(text)
			}
		}
		return out
	}
	for _, c := range []struct {
		name             string
		requests, limits v1.ResourceList
		want             stats.QOSClass
	}{
		{"nothing", nil, nil, stats.BestEffort},
		{"requests of 0", list("0", "0"), nil, stats.BestEffort},
		{"requests", list("1", ""), nil, stats.Burstable},
		{"limits alone", nil, list("1", "2"), stats.Guaranteed},
		{"one limit", nil, list("1", ""), stats.Burstable},
		{"requests that are the limits", list("1", "2"), list("1", "2"), stats.Guaranteed},
		{"lower requests", list("1", "1"), list("1", "2"), stats.Burstable},
		{"one request, the other its limit", list("1", ""), list("1", "2"), stats.Guaranteed},
		{"requests of 0 with limits", list("0", "0"), list("1", "2"), stats.Burstable},
		{"one request of 0 with limits", list("1", "0"), list("1", "2"), stats.Burstable},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: c.requests, Limits: c.limits}}}}}
		if got := stats.QOSOf(pod); got != c.want {
			t.Errorf("QoS class with %s = %s, want %s", c.name, got, c.want)
		}
	}
}
