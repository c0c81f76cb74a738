package podstore

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/stats"
)

// resized is a pod whose resize to 1Ti the kubelet deferred.
const resized = `{"metadata":{"uid":"a","namespace":"default","name":"pod-a"},
"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"1Ti"}}}]},
"status":{"allocatedResources":{"memory":"100Mi"},"containerStatuses":[{"name":"c","allocatedResources":{"memory":"100Mi"},"resources":{"requests":{"memory":"100Mi"}}}]}}`

// The agent uses the allocation in objects of root, and drops that of members: the runtime's data
// does not bound an allocation.
func TestAllocationOfRootOnly(t *testing.T) {
	for by, want := range map[Role]string{ByRoot: "100Mi", ByMember: "1Ti"} {
		s := New()
		puts(t, s, by, false, resized)
		object := s.Snapshot().Objects[0]
		if got := stats.Granted(object).Spec.Containers[0].Resources.Requests[v1.ResourceMemory]; got.String() != want {
			t.Errorf("request of the object of role %d = %s, want %s", by, got.String(), want)
		}
		if got := stats.Allocated(object); got != (by == ByRoot) {
			t.Errorf("allocation of the object of role %d kept = %v, want root's only", by, got)
		}
	}
	// root's object after a member's, which the allocation distinguishes
	s := New()
	puts(t, s, ByMember, false, resized)
	puts(t, s, ByRoot, false, resized)
	if !stats.Allocated(s.Snapshot().Objects[0]) {
		t.Error("root's object has no allocation after a member's")
	}
}

// The pod of an admission request has no allocation, even in a request of root.
func TestAskedPodHasNoAllocation(t *testing.T) {
	for _, by := range []Role{ByRoot, ByMember} {
		asked, done, err := New().Ask(strings.NewReader(resized), FormJSON, by)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		if stats.Allocated(asked.Pod) {
			t.Errorf("pod that role %d asks for has an allocation", by)
		}
	}
}
