package disk

import (
	"fmt"
	"testing"
	"time"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// If a pod has more containers than a look reads, the others are listed from the runtime's
// data, so that their disk usage counts for the pod and for their own limits.
func TestUnreadContainersCount(t *testing.T) {
	const maxContainers = 64 // that a Reader always looks into
	const uid, all = "uid-1", maxContainers + 6
	pod := &podindex.Pod{}
	l := newStorageLoop(nil, time.Minute)
	measured := &storage{time: time.Now(), layers: map[string]stats.FsUsage{}, logs: map[string]stats.FsUsage{}}
	l.pods[uid] = measured
	for i := range all {
		id := fmt.Sprintf("c%03d", i)
		pod.Containers = append(pod.Containers, cri.Container{ID: id, Name: "app" + id})
		measured.layers[id] = stats.FsUsage{Time: time.Now(), UsedBytes: 1 << 20, InodesUsed: 1}
	}
	// A container that the runtime reported at the measurement, and that is gone since.
	measured.layers["gone"] = stats.FsUsage{Time: time.Now(), UsedBytes: 7 << 20, InodesUsed: 1, Partial: true}
	p := &stats.PodStats{PodRef: stats.PodReference{UID: uid}}
	for i := range maxContainers { // as after the time limit
		p.Containers = append(p.Containers, stats.ContainerStats{ID: fmt.Sprintf("c%03d", all-1-i)})
	}
	pod.DescribeContainers(p, false)
	l.Fill(time.Now(), p)
	var inList uint64
	for _, c := range p.Containers {
		if inList += c.Rootfs.V.UsedBytes; c.Name != "app"+c.ID {
			t.Errorf("name of container %q = %q, want its own", c.ID, c.Name)
		}
	}
	if beside := p.EphemeralStorage.ExitedLayers; inList != all<<20 || len(p.Containers) != all || beside.V.UsedBytes != 7<<20 || !beside.V.Partial {
		t.Errorf("%d containers, %d MiB in their layers, exited layers %+v; want %d, each of 1 MiB, and 7 MiB", len(p.Containers), inList>>20, beside, all)
	}
}
