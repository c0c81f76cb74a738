package reclaim

import (
	"slices"
	"testing"
	"time"
)

// The age of a container that was created and not started has to be known, or it may be about to start at this moment.
func TestACreatedContainerOfUnknownAge(t *testing.T) {
	l := &Look{PodsSynced: true, Containers: []Container{
		{ID: "old", PodUID: "p", Name: "a", State: Created, CreatedAt: ago(time.Hour)},
		{ID: "new", PodUID: "p", Name: "a", State: Created, CreatedAt: ago(time.Minute)},
		{ID: "future", PodUID: "p", Name: "a", State: Created, CreatedAt: ago(-time.Minute)},
		{ID: "none", PodUID: "p", Name: "a", State: Created},
		{ID: "ended", PodUID: "p", Name: "a", State: Exited},
	}}
	plan := DefaultPolicy().Plan(now, l)
	if got := plan.IDs(RemoveContainer); !slices.Equal(got, []string{"ended", "old"}) {
		t.Errorf("got %v", got)
	}
}
