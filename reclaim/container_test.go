package reclaim

import (
	"slices"
	"testing"
	"time"
)

// A created container of unknown age is not removed: it may be about to start.
func TestCreatedContainerOfUnknownAge(t *testing.T) {
	l := &Look{PodsSynced: true, Containers: []Container{
		{ID: "old", PodUID: "p", Name: "a", State: Created, CreatedAt: ago(time.Hour)},
		{ID: "new", PodUID: "p", Name: "a", State: Created, CreatedAt: ago(time.Minute)},
		{ID: "future", PodUID: "p", Name: "a", State: Created, CreatedAt: ago(-time.Minute)},
		{ID: "none", PodUID: "p", Name: "a", State: Created},
		{ID: "ended", PodUID: "p", Name: "a", State: Exited},
	}}
	plan := DefaultPolicy().Plan(now, l)
	if got := plan.IDs(RemoveContainer); !slices.Equal(got, []string{"ended", "old"}) {
		t.Errorf("containers to remove = %v, want only those of known age", got)
	}
}
