package eviction

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

// A request that the kubelet did not confirm is exact only where runtime and node agree with it.
func TestRequestsAreBounded(t *testing.T) {
	gib := func(n uint64) uint64 { return n << 30 }
	exact := func(n uint64) stats.Range { return stats.ExactRange(gib(n)) }
	for _, c := range []struct {
		name      string
		spec      string
		allocated string // "": the object has no status
		total     string // of the whole pod; "": not stated
		shown     stats.Opt[stats.Range]
		limit     stats.Opt[uint64]
		capacity  stats.Opt[uint64]
		want      stats.Range
	}{
		{name: "only the spec", spec: "9Gi", want: exact(9)},
		{name: "the spec on a known node", spec: "3Gi", capacity: stats.Some(gib(8)), want: exact(3)},
		{name: "no node has that much", spec: "9Gi", capacity: stats.Some(gib(8)), want: stats.Range{Max: gib(8)}},
		{name: "within the runtime's bounds", spec: "3Gi", shown: stats.Some(stats.Range{Min: gib(2), Max: gib(3)}), capacity: stats.Some(gib(8)), want: exact(3)},
		{name: "less than the runtime shows, after a resize", spec: "1Gi", shown: stats.Some(exact(2)), capacity: stats.Some(gib(8)), want: exact(1)},
		{name: "more than the runtime shows", spec: "3Gi", shown: stats.Some(stats.Range{Min: gib(1), Max: gib(2)}), capacity: stats.Some(gib(8)), want: stats.Range{Min: gib(1), Max: gib(3)}},
		{name: "more than the runtime shows and the node has", spec: "1Ti", shown: stats.Some(exact(1)), capacity: stats.Some(gib(8)), want: stats.Range{Min: gib(1), Max: gib(8)}},
		{name: "more than the pod's limit", spec: "1Ti", shown: stats.Some(exact(2)), limit: stats.Some(gib(2)), capacity: stats.Some(gib(8)), want: exact(2)},
		{name: "allocated less", spec: "1Ti", allocated: "1Gi", shown: stats.Some(exact(2)), capacity: stats.Some(gib(8)), want: exact(1)},
		{name: "allocated more, and the runtime keeps the score", spec: "4Gi", allocated: "4Gi", shown: stats.Some(exact(2)), limit: stats.Some(gib(2)), capacity: stats.Some(gib(8)), want: exact(4)},
		{name: "allocated more than the node has", spec: "9Gi", allocated: "9Gi", capacity: stats.Some(gib(8)), want: exact(8)},
		{name: "a container that never started, total known", spec: "1Ti", total: "2Gi", shown: stats.Some(exact(1)), capacity: stats.Some(gib(8)), want: exact(2)},
	} {
		object := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container0("c", c.spec)}}}
		list := func(text string) v1.ResourceList { return v1.ResourceList{v1.ResourceMemory: parsed(text)} }
		if c.allocated != "" {
			object.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", AllocatedResources: list(c.allocated)}}
		}
		if c.total != "" {
			object.Status.AllocatedResources = list(c.total)
		}
		pod := &stats.PodStats{QOSClass: stats.Burstable, MemoryRequest: c.shown, Memory: stats.PodMemoryStats{LimitBytes: c.limit}}
		got := (&Policy{}).memoryRequest(&Candidate{Pod: pod, Object: NewPod(object)}, c.capacity)
		if got != stats.Some(c.want) {
			t.Errorf("%s: request = %+v, want %+v", c.name, got, c.want)
		}
	}
}

// An annotation is no more than a client's word: a request that no node has does not count.
func TestAnnotatedRequestIsBounded(t *testing.T) {
	pod := &stats.PodStats{
		PodRef: stats.PodReference{Namespace: "default"}, Announced: true, QOSClass: stats.Burstable,
		MemoryRequest: stats.Some(stats.ExactRange(1)),
	}
	p := &Policy{AnnotationNamespaces: []string{"default"}}
	for text, want := range map[string]uint64{"8Gi": 8 << 30, "9Gi": 1} {
		pod.Annotations = map[string]string{annotationMemoryRequest: text}
		if got := p.memoryRequest(&Candidate{Pod: pod}, stats.Some(uint64(8<<30))); got != stats.Some(stats.ExactRange(want)) {
			t.Errorf("annotation %s on a node of 8Gi: request = %+v, want %d", text, got, want)
		}
	}
}
