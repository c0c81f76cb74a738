package podindex

import (
	"testing"

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
