package disk

import (
	"testing"
	"time"

	"jettison/stats"
)

// Killing a pod does not free its memory-backed volumes: they reduce the upper bound of freed
// memory, never the lower one.
func TestMemoryBackedVolumesAreNotFreed(t *testing.T) {
	now := time.Now()
	l := newStorageLoop(&storageWalker{}, storageEvery)
	for uid, size := range map[string]uint64{"some": 30, "more": 500} {
		l.pods[uid] = &storage{time: now, volumes: []stats.VolumeStats{{Name: "v", Memory: true, FsUsage: stats.FsUsage{Time: now, UsedBytes: size}}}}
	}
	for uid, want := range map[string]stats.Range{"some": {Min: 100, Max: 170}, "more": {Min: 100, Max: 100}, "none": {Min: 100, Max: 200}} {
		p := stats.PodStats{PodRef: stats.PodReference{UID: uid}, Memory: stats.PodMemoryStats{FreedBytes: stats.Some(stats.Range{Min: 100, Max: 200})}}
		l.Fill(now, &p)
		if got := p.Memory.FreedBytes; got != stats.Some(want) {
			t.Errorf("freed memory of pod %s = %+v, want %+v", uid, got, want)
		}
	}
}
