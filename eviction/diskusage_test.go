package eviction

import (
	"testing"

	"jettison/stats"
)

// Usage that no own limit includes counts for the disk that holds it, by the layout, and as a lower
// bound if it is one.
func TestUsageOutsideLimitsCountsForDisk(t *testing.T) {
	c := &Candidate{Pod: &stats.PodStats{}}
	c.Pod.EphemeralStorage.Files = stats.Some(stats.FsUsage{UsedBytes: 10, InodesUsed: 1})
	c.Pod.EphemeralStorage.ExitedLayers = stats.Some(stats.FsUsage{UsedBytes: 300, InodesUsed: 20, Partial: true})
	one, dedicated := stats.Layout{}, stats.Layout{DedicatedImageFs: true}
	split := stats.Layout{DedicatedImageFs: true, SplitContainerFs: true}
	for _, w := range []struct {
		layout stats.Layout
		fs     fileSystem
		want   uint64
	}{
		{one, nodeFs, 310}, {one, imageFs, 310}, {dedicated, nodeFs, 10}, {dedicated, imageFs, 300}, {split, nodeFs, 310}, {split, imageFs, 0},
	} {
		d := &fileSystems{layout: stats.Some(w.layout)}
		watched := &watched{info: signalInfo{kind: kindBytes, fs: w.fs}}
		if got := d.namedUsage(c, watched); got != stats.Some(w.want) {
			t.Errorf("namedUsage, layout %+v, file system %v = %+v, want %d", w.layout, w.fs, got, w.want)
		}
		if !atLeast(c, watched) {
			t.Errorf("atLeast, layout %+v = false, want true for a lower bound", w.layout)
		}
	}
}
