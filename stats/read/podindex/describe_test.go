package podindex

import (
	"fmt"
	"testing"

	"jettison/cri"
	"jettison/internal/base/race"
	"jettison/stats"
)

// The cgroups of a sandbox and of CRI-O's monitor processes are no containers.
func TestDescribeContainersOmitsOthers(t *testing.T) {
	p := &Pod{SandboxIDs: []string{"s"}}
	out := stats.PodStats{Containers: []stats.ContainerStats{{ID: "s"}, {ID: "crio-conmon-c"}, {ID: "c"}}}
	if p.DescribeContainers(&out, true); len(out.Containers) != 1 || out.Containers[0].ID != "c" {
		t.Errorf("containers = %+v, want only c", out.Containers)
	}
}

// The agent keeps two of these for each pod of the node, from a list and from events. The restarts
// count each name once, with its highest attempt.
func TestPodHasFewObjects(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	const pods, limit = 100, 6 // the Pod, four slices and the map of arrange
	var l cri.Listing
	for i := range pods {
		id := fmt.Sprint(i)
		l.Sandboxes = append(l.Sandboxes, cri.PodSandbox{ID: "s" + id, UID: "u" + id})
		l.Containers = append(l.Containers, cri.Container{ID: "c" + id, SandboxID: "s" + id, Name: "main", Attempt: 3})
	}
	least := testing.AllocsPerRun(1, func() { New(cri.Listing{}) })
	if n := testing.AllocsPerRun(10, func() { New(l) }) - least; n > pods*limit+20 {
		t.Errorf("an index of %d pods takes %.0f objects, want at most %d for each pod", pods, n, limit)
	}
	l.Containers = append(l.Containers, cri.Container{ID: "d", SandboxID: "s0", Name: "main", Attempt: 2, State: cri.Exited},
		cri.Container{ID: "e", SandboxID: "s0", Name: "init", Attempt: 4, State: cri.Exited})
	var out stats.PodStats
	New(l)["u0"].Describe(&out, stats.Opt[uint64]{})
	if out.Restarts != stats.Some[uint64](7) {
		t.Errorf("restarts = %+v, want 7: 3 of main, 4 of init", out.Restarts)
	}
	out = stats.PodStats{}
	New(cri.Listing{Sandboxes: l.Sandboxes})["u0"].Describe(&out, stats.Opt[uint64]{})
	if out.Restarts.OK {
		t.Errorf("restarts of a pod without containers = %+v, want none", out.Restarts)
	}
}
