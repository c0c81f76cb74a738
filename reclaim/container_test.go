package reclaim

import (
	"slices"
	"strings"
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
	if got := plan.IDs(RemoveContainer); !slices.Equal(got, []string{"old"}) {
		t.Errorf("containers to remove = %v, want only those of known age", got)
	}
	if want := []Left{{`container "none"`, unknownCreation}, {`container "ended"`, unknownCreation}}; !slices.Equal(plan.Left, want) {
		t.Errorf("left = %v, want %v", plan.Left, want)
	}
}

// A container whose creation time the runtime does not report is no old one: its attempt places it
// among the others of its sandbox. Without any other time it protects itself.
func TestUnknownCreationIsNotOld(t *testing.T) {
	seen, hour := ago(2*time.Hour), ago(time.Hour)
	dead := func(id, sandbox string, attempt uint32, state ContainerState, at time.Time) Container {
		return Container{ID: id, SandboxID: sandbox, PodUID: "p", Name: "c", Attempt: attempt, State: state, CreatedAt: at, Seen: seen}
	}
	for _, c := range []struct {
		what       string
		pod        Phase
		sandboxes  []Sandbox
		containers []Container
		gone, left []string
	}{
		{"newest attempt, not loaded", Active, nil,
			[]Container{dead("1", "s", 1, Exited, hour), dead("2", "s", 2, Unknown, time.Time{})}, []string{"1"}, nil},
		{"middle attempt", Active, nil,
			[]Container{dead("0", "s", 0, Exited, hour), dead("1", "s", 1, Exited, time.Time{}), dead("2", "s", 2, Exited, hour.Add(time.Minute))}, []string{"0", "1"}, nil},
		{"first attempt", Active, nil,
			[]Container{dead("0", "s", 0, Exited, time.Time{}), dead("1", "s", 1, Exited, hour)}, []string{"0"}, nil},
		{"in the older sandbox", Active, []Sandbox{{ID: "s", PodUID: "p", CreatedAt: ago(3 * time.Hour)}, {ID: "t", PodUID: "p", CreatedAt: hour}},
			[]Container{dead("7", "s", 7, Exited, time.Time{}), dead("0", "t", 0, Exited, hour)}, []string{"7"}, nil},
		{"in the newer sandbox", Active, []Sandbox{{ID: "s", PodUID: "p", CreatedAt: ago(3 * time.Hour)}, {ID: "t", PodUID: "p", CreatedAt: hour}},
			[]Container{dead("7", "s", 7, Exited, ago(2*time.Hour)), dead("0", "t", 0, Unknown, time.Time{})}, []string{"7"}, nil},
		{"without any other time", Active, nil,
			[]Container{dead("1", "s", 1, Exited, hour), dead("2", "t", 2, Exited, time.Time{})}, nil, []string{"2"}},
		{"of a pod that is gone", Gone, nil,
			[]Container{dead("2", "t", 2, Exited, time.Time{})}, []string{"2"}, nil},
		{"never seen before, of a pod that is gone", Gone, nil,
			[]Container{{ID: "2", SandboxID: "t", PodUID: "p", Name: "c", State: Unknown}}, nil, []string{"2"}},
	} {
		l := &Look{PodsSynced: true, Sandboxes: c.sandboxes, Containers: c.containers, Pods: map[string]Phase{"p": c.pod}}
		plan := DefaultPolicy().Plan(now, l)
		var left []string
		for _, of := range plan.Left {
			left = append(left, strings.Trim(strings.TrimPrefix(of.What, "container "), `"`))
		}
		if got := plan.IDs(RemoveContainer); !slices.Equal(got, c.gone) || !slices.Equal(left, c.left) {
			t.Errorf("%s: removed %v, left %v; want %v and %v", c.what, got, left, c.gone, c.left)
		}
	}
}

// A sandbox of unknown age is neither removed as an older one nor is it a reason to remove another.
func TestSandboxOfUnknownAge(t *testing.T) {
	l := &Look{PodsSynced: true, Pods: map[string]Phase{"p": Active}, Sandboxes: []Sandbox{
		{ID: "none", PodUID: "p", NotReady: true},
		{ID: "old", PodUID: "p", NotReady: true, CreatedAt: ago(time.Hour)},
	}}
	plan := DefaultPolicy().Plan(now, l)
	if want := []Left{{`sandbox "none"`, unknownCreation}}; len(plan.Steps) > 0 || !slices.Equal(plan.Left, want) {
		t.Errorf("plan = %+v, left %v; want no step, left %v", plan.Steps, plan.Left, want)
	}
	l.Pods["p"] = Gone
	plan = DefaultPolicy().Plan(now, l)
	if got := plan.IDs(RemoveSandbox); !slices.Equal(got, []string{"none", "old"}) {
		t.Errorf("sandboxes to remove of a pod that is gone = %v, want both", got)
	}
	l = &Look{Sandboxes: []Sandbox{{ID: "none"}}}
	if l.Pulling(now) != "none" {
		t.Errorf("a ready sandbox of unknown age without containers does not count as young")
	}
}
