package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// harmless is a pod that starts and does nothing: the baseline of the others.
var harmless = &hardship{
	what: "a pod that sleeps", lasts: 3 * time.Second,
	culprits: func() []*v1.Pod { return []*v1.Pod{vm.NewPod("sleeper", "", "", "sleep")} },
}

// BenchmarkFullSpeedLeak lets a pod leak at full speed, with the default thresholds, repeatedly on one
// node. Only the transition period is configured: with the default one, the agent would reject the
// leaking pods of five minutes. It reports the dead pods, the kernel's OOM kills, and the longest
// pause of an innocent pod.
func BenchmarkFullSpeedLeak(b *testing.B) {
	a := startArena(b, config(""))
	leak := &hardship{what: "a leak at full speed", culprits: func() []*v1.Pod {
		return []*v1.Pod{vm.NewPod("leaker", "", "", "alloc -size 4Gi")}
	}}
	t := questions("a pod that leaks at full speed, default thresholds, kernel " + a.Kernel)
	answer(t, harmless, a.repeat(harmless, 2))
	answer(t, leak, a.repeat(leak, trials(20)))
	t.print()
	reportOnce(b)
}

// reportOnce ends a benchmark that does its own counting.
func reportOnce(b *testing.B) {
	for b.Loop() { // one that never loops is called once more
	}
}

// The agent measures the rate at which memory can be filled, and derives its threshold advice from
// it. That rate is within a factor of two of a real leak on all cores. It is measured by the
// shipped agent, in its container with its limits, and by the tests of the same code.
func TestFullSpeedIsWhatTheAgentMeasures(t *testing.T) {
	n := startNode(t)
	out, err := n.RunTests(n.ctx, "./internal/agent/pace", "-test.run=^TestLiveFill", "-test.v", "-test.timeout=5m")
	if err != nil {
		t.Fatal(err)
	}
	var cores int
	var first, leak, measured float64
	at := max(0, strings.Index(out, "cores "))
	if _, err := fmt.Sscanf(out[at:], "cores %d first %f leak %f measured %f", &cores, &first, &leak, &measured); err != nil {
		t.Fatalf("measure the fill rate: %v:\n%s", err, out)
	}
	n.startAgent("")
	fill, _ := n.agentLogs("started", 1).Fields["fillFloor"].(float64)
	t.Logf("%d cores: a leak %.1f GB/s (the first one %.1f), measured by the test %.1f, by the agent %.1f", cores, leak/1e9, first/1e9, measured/1e9, fill/1e9)
	if fill > 2*leak || fill < leak/2 {
		t.Errorf("fill rate measured by the agent = %.1f GB/s, want within a factor of two of a leak's %.1f", fill/1e9, leak/1e9)
	}
}
