package eviction

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"jettison/stats"
)

// Pods that a foreign Summary lacks come in the order of their UIDs at each step.
func TestUnseenPodsHaveAnOrder(t *testing.T) {
	in := Input{Summary: &stats.Summary{}, Pods: map[string]*Pod{}}
	for i := range 20 {
		object := &Pod{Ref: stats.PodReference{UID: fmt.Sprintf("uid-%02d", i)}}
		in.Pods[object.Ref.UID] = object
	}
	var got []string
	in.unseen(func(p *stats.PodStats, _ *Pod) { got = append(got, p.PodRef.UID) })
	if len(got) != len(in.Pods) || !slices.IsSorted(got) {
		t.Errorf("unseen pods = %v, want all 20 in the order of their UIDs", got)
	}
}

// The agent keeps up to two of these for each pod of the node: a static pod's manifest, and the
// kubelet's object.
func TestPodObjectIsSmall(t *testing.T) {
	const limit = 1 << 10
	if size := unsafe.Sizeof(Pod{}); size > limit {
		t.Errorf("a Pod takes %d bytes, want at most %d", size, limit)
	}
}
