package eviction

import (
	"testing"

	"jettison/stats"
)

// What a victim is expected to return is an amount, or not known: what it reads, writes or computes in a second does not come back.
func TestWhatAnEndIsExpectedToReturn(t *testing.T) {
	pod := &stats.PodStats{Memory: stats.PodMemoryStats{WorkingSetBytes: stats.Some[uint64](5)}}
	for signal, info := range signals {
		want := stats.Some[uint64](7)
		switch signal {
		case stats.SignalMemoryAvailable, stats.SignalAllocatableMemoryAvailable, stats.SignalMemoryPressureFull, stats.SignalMemoryPressureSome:
			want.V = 5
		case stats.SignalIOPressureFull, stats.SignalCPUPressureSome:
			want = stats.Opt[uint64]{}
		}
		c := &Candidate{Pod: pod, Keys: Keys{Usage: 7, Measured: true, kind: info.kind}}
		if got := expected(c, &watched{Threshold: Threshold{Signal: signal}, info: info}); got != want {
			t.Errorf("%s: %+v, want %+v", signal, got, want)
		}
	}
}
