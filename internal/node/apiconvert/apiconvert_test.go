package apiconvert

import (
	"testing"
	"time"

	"jettison/eviction"
	"jettison/stats"
)

// The outlook of a disk has the time of the oldest usage that ranks a pod. A pod without a known usage has none, nor has the outlook
// of another signal.
func TestTimeOfDiskUsage(t *testing.T) {
	now := time.Now()
	ranked := func(age time.Duration, measured bool) eviction.Ranked {
		pod := &stats.PodStats{}
		pod.EphemeralStorage.Time = now.Add(-age)
		r := eviction.Ranked{Candidate: eviction.Candidate{Pod: pod}}
		r.Keys.Measured = measured
		return r
	}
	ranking := []eviction.Ranked{ranked(time.Minute, true), ranked(50*time.Minute, true), ranked(2*time.Hour, false), ranked(0, true)}
	for signal, want := range map[stats.Signal]time.Time{
		stats.SignalNodeFsAvailable: now.Add(-50 * time.Minute), stats.SignalImageFsInodesFree: now.Add(-50 * time.Minute),
		stats.SignalMemoryAvailable: {}, stats.SignalPIDAvailable: {},
	} {
		o := eviction.Outlook{Threshold: eviction.Threshold{Signal: signal}, Ranking: ranking}
		got := Outlook(&o, func(stats.PodReference) string { return "" }).DiskUsageTime
		if (got == nil) != want.IsZero() || got != nil && !got.Equal(want) {
			t.Errorf("%s: time of the disk usage = %v, want %v", signal, got, want)
		}
	}
	unknown := eviction.Outlook{Threshold: eviction.Threshold{Signal: stats.SignalNodeFsAvailable}, Ranking: ranking[2:3]}
	if got := Outlook(&unknown, func(stats.PodReference) string { return "" }).DiskUsageTime; got != nil {
		t.Errorf("time without a known disk usage = %v, want nil", got)
	}
}
