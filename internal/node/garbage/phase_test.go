package garbage

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/reclaim"
)

// The kubelet's rule (pkg/kubelet/pod_workers.go ShouldPodContentBeRemoved): everything is removed
// of a pod that was evicted, or that was deleted and has ended.
func TestPhaseOf(t *testing.T) {
	deleted := &metav1.Time{}
	for _, c := range []struct {
		phase   v1.PodPhase
		reason  string
		deleted *metav1.Time
		want    reclaim.Phase
	}{
		{"", "", nil, reclaim.Active},
		{v1.PodRunning, "", nil, reclaim.Active},
		{v1.PodRunning, "", deleted, reclaim.Active},
		{v1.PodRunning, "Evicted", nil, reclaim.Active},
		{v1.PodPending, "Evicted", nil, reclaim.Active},
		{v1.PodFailed, "", nil, reclaim.Terminated},
		{v1.PodFailed, "evicted", nil, reclaim.Terminated},
		{v1.PodFailed, "Evicted", nil, reclaim.Evicted},
		{v1.PodFailed, "Evicted", deleted, reclaim.Evicted},
		{v1.PodFailed, "", deleted, reclaim.Gone},
		{v1.PodSucceeded, "Evicted", nil, reclaim.Terminated},
		{v1.PodSucceeded, "Evicted", deleted, reclaim.Gone},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: c.deleted}, Status: v1.PodStatus{Phase: c.phase, Reason: c.reason}}
		if got := PhaseOf(p); got != c.want {
			t.Errorf("phase of %+v = %v, want %v", c, got, c.want)
		}
	}
}
