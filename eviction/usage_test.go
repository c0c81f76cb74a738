package eviction

import (
	"testing"

	"jettison/stats"
)

// The expected return of a victim is an amount, or unknown: what it reads, writes or computes per
// second does not return.
func TestExpectedReturnIsAnAmount(t *testing.T) {
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
			t.Errorf("expected return for %s = %+v, want %+v", signal, got, want)
		}
	}
}
