package read

import (
	"testing"

	"pgregory.net/rapid"

	"jettison/cri"
	"jettison/stats"
)

// kubeletOOMScoreAdj is the kubelet's formula for a Burstable container (v1.36 pkg/kubelet/qos/policy.go,
// GetContainerOOMScoreAdjust).
func kubeletOOMScoreAdj(request, capacity int64) int64 {
	adj := 1000 - (1000*request)/capacity
	if adj < 1000+oomScoreAdjGuaranteed {
		return 1000 + oomScoreAdjGuaranteed
	}
	if adj == oomScoreAdjBestEffort {
		return adj - 1
	}
	return adj
}

// Whatever was requested, the request lies in the interval made of its oom_score_adj, which is a thousandth of the capacity
// wide but at the clamps.
func TestTheInverseHoldsTheRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1000, 1<<43).Draw(t, "capacity")
		request := rapid.Int64Range(0, capacity).Draw(t, "request")
		adj := kubeletOOMScoreAdj(request, capacity)
		got := requestFromOOMScoreAdj(adj, uint64(capacity))
		if uint64(request) < got.Min || uint64(request) > got.Max {
			t.Fatalf("adj %d: %d is not in [%d, %d]", adj, request, got.Min, got.Max)
		}
		if width := got.Max - got.Min; adj > oomScoreAdjBurstableMin && adj < oomScoreAdjBurstableMax && width > uint64(capacity)/1000+1 {
			t.Fatalf("adj %d: the interval is %d wide, of %d", adj, width, capacity)
		}
	})
}

func TestContainerRequest(t *testing.T) {
	capacity := stats.Some[uint64](1000 << 20)
	adj := func(v int64) *int64 { return &v }
	limit := func(v uint64) *uint64 { return &v }
	for _, c := range []struct {
		name  string
		qos   stats.QOSClass
		adj   *int64
		limit *uint64
		want  stats.Opt[stats.Range]
	}{
		{"BestEffort requests nothing", stats.BestEffort, adj(1000), nil, stats.Some(stats.Range{})},
		{"Guaranteed requests its limit", stats.Guaranteed, adj(-997), limit(7), stats.Some(stats.Range{Min: 7, Max: 7})},
		{"Guaranteed whose limit the runtime hides", stats.Guaranteed, adj(-997), nil, stats.Opt[stats.Range]{}},
		{"Burstable by its score", stats.Burstable, adj(900), limit(7), stats.Some(stats.Range{Min: 100 << 20, Max: 101<<20 - 1})},
		{"Burstable without a score", stats.Burstable, nil, limit(7), stats.Opt[stats.Range]{}},
		{"critical, so the score says nothing", stats.Burstable, adj(-997), nil, stats.Opt[stats.Range]{}},
		{"of no known class, with a BestEffort's score", "", adj(1000), nil, stats.Some(stats.Range{})},
		{"of no known class", "", adj(0), limit(7), stats.Opt[stats.Range]{}},
	} {
		if got := containerRequest(c.qos, &cri.Container{OOMScoreAdj: c.adj, MemoryLimit: c.limit}, capacity); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := containerRequest(stats.Burstable, &cri.Container{OOMScoreAdj: adj(900)}, stats.Opt[uint64]{}); got.OK {
		t.Errorf("capacity unknown: got %+v", got)
	}
}

// What cpuRequest says of the shares that a kubelet writes holds the request that they were made of.
func TestCPURequestHoldsWhatTheKubeletWasGiven(t *testing.T) {
	for milli := range uint64(20000) {
		shares := max(milli*1024/1000, 2) // kubelet MilliCPUToShares
		r := cpuRequest(&shares)
		if !r.OK || milli < r.V.Min || milli > r.V.Max || r.V.Max-r.V.Min > 2 {
			t.Fatalf("%dm: shares %d, request %+v", milli, shares, r)
		}
	}
	if cpuRequest(nil).OK {
		t.Error("no shares: want it absent")
	}
}

// What the kubelet wrote out is exact, whatever the score says; a tenant's BestEffort container has none.
func TestARequestThatIsWrittenOutIsExact(t *testing.T) {
	score := int64(900)
	for _, c := range []struct {
		qos  stats.QOSClass
		key  string
		text string
		want stats.Opt[stats.Range]
	}{
		{stats.Burstable, "memory.low", "1048576", stats.Some(stats.Exactly(1 << 20))},
		{stats.Guaranteed, "memory.min", "1048576", stats.Some(stats.Exactly(1 << 20))},
		{stats.BestEffort, "memory.low", "1048576", stats.Some(stats.Range{})},
		{stats.Burstable, "memory.low", "max", stats.Opt[stats.Range]{}},
		{stats.Burstable, "memory.low", "0", stats.Opt[stats.Range]{}},
	} {
		got := containerRequest(c.qos, &cri.Container{OOMScoreAdj: &score, Unified: map[string]string{c.key: c.text}}, stats.Opt[uint64]{})
		if got != c.want {
			t.Errorf("%s %s=%s: %+v", c.qos, c.key, c.text, got)
		}
	}
}
