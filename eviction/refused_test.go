package eviction

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// A pod with a status too large to be read hides its request. It is ranked as over it: before all
// pods within theirs and all whose request is unknown for other reasons, by its usage. If the
// request is known nevertheless, that counts.
func TestHiddenRequestCountsAsExceeded(t *testing.T) {
	thresholds, _, errs := Settings{EvictionHard: map[string]string{"memory.available": "100Mi"}}.Parse()
	if len(errs) > 0 {
		t.Fatalf("Parse of the settings failed: %v", errs)
	}
	m := NewManager(Config{Thresholds: thresholds, MemoryAvailable: stats.MemoryAvailableLower})
	pod := func(name string, usage uint64, request stats.Opt[stats.Range], refused bool) stats.PodStats {
		return stats.PodStats{
			PodRef: stats.PodReference{Namespace: "default", Name: name, UID: name}, Announced: true, QOSClass: stats.Burstable,
			Populated: stats.Some(true), StatusRefused: refused, MemoryRequest: request,
			Memory: stats.PodMemoryStats{WorkingSetBytes: stats.Some(usage << 20)},
		}
	}
	known := func(mib uint64) stats.Opt[stats.Range] { return stats.Some(stats.ExactRange(mib << 20)) }
	unknown := stats.Opt[stats.Range]{}
	now := time.Unix(1e9, 0)
	s := &stats.Summary{Time: now, Pods: []stats.PodStats{
		pod("within", 900, known(1000), false), pod("unknown", 800, unknown, false), pod("hides", 300, unknown, true),
		pod("over", 400, known(50), false), pod("hides-in-vain", 500, known(600), true), pod("told", 200, unknown, true),
	}}
	s.Node.Memory = stats.NodeMemoryStats{Time: now, CapacityBytes: stats.Some(uint64(4 << 30)),
		WorkingSetBytes: stats.Some(uint64(4<<30 - 50<<20)), KernelAvailableBytes: stats.Some(uint64(50 << 20))}
	object := &v1.Pod{}
	object.Namespace, object.Name, object.UID = "default", "told", "told"
	object.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("300Mi")}}}}
	d := m.Step(now, Input{Summary: s, Pods: map[string]*Pod{"told": NewPod(object)}})
	if len(d.Evictions) != 1 {
		t.Fatalf("%d evictions, want one: %+v", len(d.Evictions), d)
	}
	if got := names(d.Ranking); got != "over hides unknown hides-in-vain told within" {
		t.Errorf("ranking = %s, want over hides unknown hides-in-vain told within", got)
	}
	for _, r := range d.Ranking {
		if text := r.Explain(); r.Pod.PodRef.Name == "hides" && !strings.Contains(text, "counts as over its request") {
			t.Errorf("Explain = %q, want \"counts as over its request\" in it", text)
		}
	}
}
