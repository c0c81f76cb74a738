package eviction

import (
	"fmt"
	"slices"
	"testing"

	"jettison/stats"
)

// Pods that a foreign Summary lacks come in the order of their UIDs at each step.
func TestUnseenPodsHaveAnOrder(t *testing.T) {
	in := Input{Summary: &stats.Summary{}, Pods: map[string]*Pod{}}
	for i := range 20 {
		object := &Pod{}
		object.unseen.PodRef.UID = fmt.Sprintf("uid-%02d", i)
		in.Pods[object.unseen.PodRef.UID] = object
	}
	var got []string
	in.unseen(func(p *stats.PodStats, _ *Pod) { got = append(got, p.PodRef.UID) })
	if len(got) != len(in.Pods) || !slices.IsSorted(got) {
		t.Errorf("unseen pods = %v, want all 20 in the order of their UIDs", got)
	}
}
