package eviction

import (
	"testing"
	"time"

	"jettison/stats"
)

// A soft threshold in its grace period does not delay a hard one by an observation from before the
// reclaim: both are observed again.
func TestSoftDelaysNoHardAfterReclaim(t *testing.T) {
	for name, lines := range map[string][]string{"hard": hardLines, "hard and soft": append(hardLines, softLines...)} {
		m := managerOf(t, 0, lines...)
		look := func(at time.Time, left uint64) Input {
			in := Input{Summary: &stats.Summary{}}
			in.Summary.Node.Layout = stats.Some(stats.Layout{})
			in.Summary.Node.Fs = stats.Some(stats.FsStats{Time: at, CapacityBytes: stats.Some(uint64(16 << 30)), AvailableBytes: stats.Some(left)})
			for _, uid := range []string{"a", "b"} {
				in.Summary.Pods = append(in.Summary.Pods, stats.PodStats{PodRef: stats.PodReference{Name: uid, Namespace: "d", UID: uid}})
			}
			return in
		}
		evict := func(now time.Time, left uint64) Decision {
			m.Step(now, look(now, 0))
			return m.StepAfterReclaim(now, look(now, left))
		}
		first := evict(epoch, 0)
		if len(first.Evictions) != 1 {
			t.Fatalf("%s: %d evictions in the first step, want one: %s", name, len(first.Evictions), first.Reason)
		}
		e := first.Evictions[0]
		l := m.Begin(Stamp{Time: epoch}, e, metBy(first, &e))
		m.Emptied(Stamp{Time: epoch}, l)
		m.Cleaned(Stamp{Time: epoch}, l)
		// what it returned is available: it was not enough
		if second := evict(epoch.Add(time.Millisecond), 512<<20); len(second.Evictions) != 1 {
			t.Errorf("%s: %d evictions after the first victim's end, want one: %s", name, len(second.Evictions), second.Reason)
		}
	}
}
