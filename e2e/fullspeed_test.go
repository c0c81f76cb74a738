package e2e

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// harmless is a pod that is started and does nothing: what the others are held against.
var harmless = &hardship{
	what: "a pod that sleeps", lasts: 3 * time.Second,
	culprits: func() []*v1.Pod { return []*v1.Pod{vm.NewPod("sleeper", "", "", "sleep")} },
}

// BenchmarkFullSpeedLeak lets a pod leak as fast as it can, with the default thresholds and no configuration at all, again and
// again on one node: who died, did the kernel's OOM killer fire, how long did an innocent pod stand still.
func BenchmarkFullSpeedLeak(b *testing.B) {
	a := startArena(b, "")
	leak := &hardship{what: "a leak at full speed", culprits: func() []*v1.Pod {
		return []*v1.Pod{vm.NewPod("leaker", "", "", "alloc -size 4Gi")}
	}}
	t := questions("a pod that leaks at full speed, default thresholds, kernel " + a.Kernel)
	answer(t, harmless, a.repeat(harmless, 2))
	answer(t, leak, a.repeat(leak, trials(20)))
	t.print()
	once(b)
}

// once ends a benchmark that has counted by itself.
func once(b *testing.B) {
	for b.Loop() { // one that never loops is called once more
	}
}
