package podindex

import (
	"testing"

	"pgregory.net/rapid"

	"jettison/cri"
	"jettison/stats"
)

// kubeletOOMScoreAdj computes the kubelet's formula for a Burstable container (v1.37
// pkg/kubelet/qos/policy.go, GetContainerOOMScoreAdjust).
func kubeletOOMScoreAdj(request, capacity int64) int64 {
	adj := 1000 - (1000*request)/capacity
	if adj < 1000+OOMScoreAdjGuaranteed {
		return 1000 + OOMScoreAdjGuaranteed
	}
	if adj == oomScoreAdjBestEffort {
		return adj - 1
	}
	return adj
}

// Any request is within the interval computed from its oom_score_adj, which spans a thousandth
// of the capacity except at the clamps.
func TestInverseContainsTheRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1000, 1<<43).Draw(t, "capacity")
		request := rapid.Int64Range(0, capacity).Draw(t, "request")
		adj := kubeletOOMScoreAdj(request, capacity)
		got := requestFromOOMScoreAdj(adj, uint64(capacity))
		if uint64(request) < got.Min || uint64(request) > got.Max {
			t.Fatalf("adj %d: request %d is not in [%d, %d]", adj, request, got.Min, got.Max)
		}
		if width := got.Max - got.Min; adj > oomScoreAdjBurstableMin && adj < oomScoreAdjBurstableMax && width > uint64(capacity)/1000+1 {
			t.Fatalf("adj %d: the interval spans %d of capacity %d", adj, width, capacity)
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
			t.Errorf("request of the container with %s = %+v, want %+v", c.name, got, c.want)
		}
	}
	if got := containerRequest(stats.Burstable, &cri.Container{OOMScoreAdj: adj(900)}, stats.Opt[uint64]{}); got.OK {
		t.Errorf("request with an unknown capacity = %+v", got)
	}
}

// The range that cpuRequest computes from a kubelet's shares contains the original request.
func TestCPURequestContainsTheKubeletsRequest(t *testing.T) {
	for milli := range uint64(20000) {
		shares := max(milli*1024/1000, 2) // kubelet MilliCPUToShares
		r := cpuRequest(&shares)
		if !r.OK || milli < r.V.Min || milli > r.V.Max || r.V.Max-r.V.Min > 2 {
			t.Fatalf("request of %dm with shares %d became %+v", milli, shares, r)
		}
	}
	if cpuRequest(nil).OK {
		t.Error("CPU request without shares is present, want absent")
	}
}

// A request that the kubelet wrote to the settings is exact, for any score; a tenant's
// BestEffort container has no request.
func TestWrittenRequestIsExact(t *testing.T) {
	score := int64(900)
	for _, c := range []struct {
		qos  stats.QOSClass
		key  string
		text string
		want stats.Opt[stats.Range]
	}{
		{stats.Burstable, "memory.low", "1048576", stats.Some(stats.ExactRange(1 << 20))},
		{stats.Guaranteed, "memory.min", "1048576", stats.Some(stats.ExactRange(1 << 20))},
		{stats.BestEffort, "memory.low", "1048576", stats.Some(stats.Range{})},
		{stats.Burstable, "memory.low", "max", stats.Opt[stats.Range]{}},
		{stats.Burstable, "memory.low", "0", stats.Opt[stats.Range]{}},
	} {
		got := containerRequest(c.qos, &cri.Container{OOMScoreAdj: &score, Unified: map[string]string{c.key: c.text}}, stats.Opt[uint64]{})
		if got != c.want {
			t.Errorf("request of a %s container with %s=%s: %+v", c.qos, c.key, c.text, got)
		}
	}
}

// A pod's request is a range wherever its containers leave it open. The scores are the
// kubelet's on a node with 32Gi.
func TestAPodsRequestIsARange(t *testing.T) {
	const gi, mi, capacity = int64(1 << 30), int64(1 << 20), int64(32 << 30)
	asks := func(name string, request int64) cri.Container {
		adj := kubeletOOMScoreAdj(request, capacity)
		return cri.Container{ID: name, Name: name, SandboxID: "s", State: cri.Running, OOMScoreAdj: &adj}
	}
	exited := func(c cri.Container) cri.Container { c.State = cri.Exited; return c }
	told := func(milli int64) cri.PodSandbox { return cri.PodSandbox{CPUShares: shares(milli)} }
	milli := func(c cri.Container, n int64) cri.Container { c.CPUShares = shares(n); return c }
	written := func(c cri.Container, request string) cri.Container {
		c.Unified = map[string]string{"memory.min": request}
		return c
	}
	overhead := uint64(128 * mi)
	for _, c := range []struct {
		name        string
		sandbox     cri.PodSandbox
		containers  []cri.Container
		least, most int64 // to about a thousandth of the capacity for each container
	}{
		{"8Gi, and two sidecars of 64Mi that carry its score", cri.PodSandbox{}, []cri.Container{asks("app", 8*gi), asks("a", 8*gi), asks("b", 8*gi)}, 8 * gi, 24 * gi},
		{"a sidecar with a score of its own", cri.PodSandbox{}, []cri.Container{asks("app", gi), asks("proxy", 2*gi), asks("log", gi)}, 2 * gi, 4 * gi},
		{"two that are not alike may be an init container and a sidecar", cri.PodSandbox{}, []cri.Container{asks("app", 4*gi), asks("log", 64*mi)}, 4 * gi, 4*gi + 64*mi},
		{"an init container that is done counts", cri.PodSandbox{}, []cri.Container{asks("app", gi), exited(asks("init", 6*gi))}, 6 * gi, 7 * gi},
		{"nothing lives: more may come", cri.PodSandbox{}, []cri.Container{exited(asks("init", 6*gi))}, 6 * gi, capacity},
		{"the sandbox was made for more", told(500), []cri.Container{milli(asks("init", 64*mi), 100)}, 0, capacity},
		{"a container that is never made: its image does not exist", told(110), []cri.Container{milli(asks("app", 64*mi), 100)}, 64 * mi, capacity},
		{"the sandbox was made for that", told(100), []cri.Container{milli(asks("app", gi), 100)}, gi, gi},
		{"the newest of a name counts", cri.PodSandbox{}, []cri.Container{exited(asks("app", 6*gi)), asks("app", gi)}, gi, gi},
		{"what is written out is exact, sidecars too", cri.PodSandbox{}, []cri.Container{written(asks("app", 8*gi), "8589934592"), written(asks("a", 8*gi), "67108864")}, 8*gi + 64*mi, 8*gi + 64*mi},
		{"overhead", cri.PodSandbox{RuntimeHandler: "vm", Overhead: &overhead}, []cri.Container{asks("app", gi)}, gi + 128*mi, gi + 128*mi},
		{"a RuntimeClass of which no overhead is told", cri.PodSandbox{RuntimeHandler: "vm"}, []cri.Container{asks("app", gi)}, gi, capacity},
		{"one of which nothing is known yet", cri.PodSandbox{}, []cri.Container{asks("app", gi), {ID: "new", SandboxID: "s"}}, gi, capacity},
	} {
		c.sandbox.ID, c.sandbox.UID, c.sandbox.Ready = "s", "u", true
		p := New(cri.Listing{Sandboxes: []cri.PodSandbox{c.sandbox}, Containers: c.containers})["u"]
		out := stats.PodStats{QOSClass: stats.Burstable}
		p.Describe(&out, stats.Some(uint64(capacity)))
		got, blur := out.MemoryRequest, capacity/1000*int64(2*len(c.containers)+1)
		near := func(a uint64, b int64) bool { return int64(a) <= b+blur && int64(a) >= b-blur }
		if !got.OK || !near(got.V.Min, c.least) || !near(got.V.Max, c.most) {
			t.Errorf("%s: request present %v, %dMi to %dMi, want %dMi to %dMi", c.name, got.OK, got.V.Min>>20, got.V.Max>>20, c.least>>20, c.most>>20)
		}
	}
}

// If a container, live or exited, hides its score, the pod has no request that would rank it
// below its usage.
func TestARefusedContainerLeavesNoRequest(t *testing.T) {
	for _, state := range []cri.ContainerState{cri.Running, cri.Exited} {
		adj := int64(900)
		p := New(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: "u", Ready: true}}, Containers: []cri.Container{
			{ID: "a", Name: "a", SandboxID: "s", State: cri.Running, OOMScoreAdj: &adj}, {ID: "b", Name: "b", SandboxID: "s", State: state, Refused: true}}})["u"]
		if got := p.memoryRequest(stats.Burstable, stats.Some[uint64](1<<30)); got.OK || !p.StatusRefused() {
			t.Errorf("request with a refused %s container = %+v, refused %v", state, got, p.StatusRefused())
		}
	}
}

// A pod of a RuntimeClass with a sandbox status that exceeds the size limit hides its overhead:
// it has no request that would rank it below its usage. With the default class there is no
// overhead to hide.
func TestARefusedSandboxLeavesNoRequest(t *testing.T) {
	adj, overhead := int64(900), uint64(128<<20)
	for _, c := range []struct {
		sandbox cri.PodSandbox
		qos     stats.QOSClass
		known   bool
	}{
		{cri.PodSandbox{Refused: true, RuntimeHandler: "vm"}, stats.Burstable, false},
		{cri.PodSandbox{Refused: true, RuntimeHandler: "vm"}, stats.Guaranteed, false},
		{cri.PodSandbox{Refused: true, RuntimeHandler: "vm"}, stats.BestEffort, true},
		{cri.PodSandbox{Refused: true}, stats.Burstable, true},
		{cri.PodSandbox{Refused: true, RuntimeHandler: "vm", Overhead: &overhead}, stats.Burstable, true},
		{cri.PodSandbox{RuntimeHandler: "vm"}, stats.Burstable, true}, // a runtime that reports no overhead
	} {
		c.sandbox.ID, c.sandbox.UID, c.sandbox.Ready = "s", "u", true
		limit := uint64(1 << 30)
		p := New(cri.Listing{Sandboxes: []cri.PodSandbox{c.sandbox}, Containers: []cri.Container{
			{ID: "a", Name: "a", SandboxID: "s", State: cri.Running, OOMScoreAdj: &adj, MemoryLimit: &limit}}})["u"]
		out := stats.PodStats{QOSClass: c.qos}
		p.Describe(&out, stats.Some[uint64](32<<30))
		if out.MemoryRequest.OK != c.known || out.StatusRefused != c.sandbox.Refused {
			t.Errorf("%s pod with sandbox %+v: request %+v, refused %v", c.qos, c.sandbox, out.MemoryRequest, out.StatusRefused)
		}
	}
}

// A CPU request follows the containers, and its upper bound is at least the sandbox's: an init
// container requests less.
func TestAPodsRequestForCPU(t *testing.T) {
	one := func(milli int64, state cri.ContainerState) cri.Container {
		return cri.Container{ID: state.String(), SandboxID: "s", State: state, CPUShares: shares(milli)}
	}
	for _, c := range []struct {
		sandbox     *uint64
		containers  []cri.Container
		least, most uint64
	}{
		{shares(500), []cri.Container{one(100, cri.Running)}, 100, 500},
		{shares(100), []cri.Container{one(200, cri.Running)}, 200, 200}, // after an in-place resize
		{nil, []cri.Container{one(100, cri.Running), one(300, cri.Exited)}, 100, 400},
	} {
		p := New(cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s", UID: "u", CPUShares: c.sandbox}}, Containers: c.containers})["u"]
		got := p.cpuMillis()
		if !got.OK || got.V.Min+2 < c.least || got.V.Min > c.least || got.V.Max < c.most || got.V.Max > c.most+4 {
			t.Errorf("CPU request of the pod = %+v, want %d to %d", got, c.least, c.most)
		}
	}
}
