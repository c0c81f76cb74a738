package disk

import (
	"fmt"
	"testing"
	"time"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// Of a pod with more containers than are always looked into the others are listed by the runtime's word, so that
// what they have written counts for the pod and for their own limits.
func TestContainersThatAreNotLookedIntoHideNothing(t *testing.T) {
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
	// One that the runtime told of when it was measured, and that has gone since.
	measured.layers["gone"] = stats.FsUsage{Time: time.Now(), UsedBytes: 7 << 20, InodesUsed: 1, Partial: true}
	p := &stats.PodStats{PodRef: stats.PodReference{UID: uid}}
	for i := range maxContainers { // as where no time is left
		p.Containers = append(p.Containers, stats.ContainerStats{ID: fmt.Sprintf("c%03d", all-1-i)})
	}
	pod.DescribeContainers(p, false)
	l.Fill(time.Now(), p)
	var inList uint64
	for _, c := range p.Containers {
		if inList += c.Rootfs.V.UsedBytes; c.Name != "app"+c.ID {
			t.Errorf("%q is called %q", c.ID, c.Name)
		}
	}
	if beside := p.EphemeralStorage.ExitedLayers; inList != all<<20 || len(p.Containers) != all || beside.V.UsedBytes != 7<<20 || !beside.V.Partial {
		t.Errorf("%d containers, %d MiB in their layers, beside them %+v; want %d, each of 1 MiB, and 7 MiB", len(p.Containers), inList>>20, beside, all)
	}
}
