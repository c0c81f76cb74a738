package e2e

import (
	"fmt"
	"testing"
	"time"

	"jettison/e2e/vm"
)

// zram gives the node swap in compressed memory.
func (n *node) zram(size int64) {
	n.t.Helper()
	n.shell(fmt.Sprintf("echo %d > /sys/block/zram0/disksize && busybox mkswap /dev/zram0 && busybox swapon /dev/zram0", size))
}

// reclaimLog returns the agent's count-th log line about a proactive reclaim.
func (n *node) reclaimLog(count int) vm.LogLine {
	n.t.Helper()
	line := n.agentLogs("reclaimed memory", count)
	n.t.Logf("asked for %.0f MiB of %v, %.0f MiB came back in %v, %.0f KiB were read in again", number(line, "requested")/mib, line.Fields["kind"],
		number(line, "gain")/mib, line.Duration("took"), number(line, "refaulted")/1024)
	return line
}

// number returns a numeric field of a line of the agent's log.
func number(l vm.LogLine, field string) float64 {
	v, _ := l.Fields[field].(float64)
	return v
}

// expectNoEviction asserts that the agent has evicted no pod so far.
func (n *node) expectNoEviction() {
	n.t.Helper()
	for _, l := range n.agentLog() {
		if l.Msg == "evicted" || l.Msg == "evicting" {
			n.t.Errorf("agent logged an eviction, want none: %s: %v", l.Msg, l.Fields)
		}
	}
}

// A sleeping pod has memory, and another pod allocates more than is left above the threshold. With
// compressed swap in memory the agent has the sleeper's memory swapped out, and evicts no pod.
func TestSqueezingColdMemoryAvertsAnEviction(t *testing.T) {
	n := startNode(t)
	n.zram(512 * mib)
	n.holding(vm.NewPod("sleeper", "", "", "alloc -size 200Mi"), 200*mib)
	n.startAgent(config("evictionHard: {memory.available: 100Mi}"))
	n.fillTo(60 * mib)
	// 50 MiB more than available, at no more than the 4 MiB a second at which an emulated CPU
	// compresses while another node runs on the same machine.
	n.holding(vm.NewPod("worker", "256Mi", "", "alloc -rate 3Mi -size 110Mi"), 100*mib)
	line := n.reclaimLog(1)
	if line.Fields["kind"] != "anonymous memory" || line.Fields["effective"] != true {
		t.Errorf("agent logged an unexpected line: %v", line.Fields)
	}
	n.expectMemoryAvailable()
	n.expectNoEviction()
}

// Without swap only page cache can be reclaimed, which already counts as available. The agent tries
// twice and disables proactive reclaim.
func TestSqueezingTurnsItselfOffWithoutSwap(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("evictionHard: {memory.available: 100Mi}"))
	n.holding(vm.NewPod("reader", "", "", "fill -size 160Mi /layer + sleep"), 160*mib)
	n.shell("sync")
	n.fillTo(defaultThreshold + 20*mib) // leaves twice the threshold when the worker starts, and half of that when it ends
	n.holding(vm.NewPod("worker", "256Mi", "", "alloc -rate 4Mi -size 70Mi"), 60*mib)
	line := n.agentLogs("proactive reclaim paused", 1)
	if line.Fields["kind"] != "page cache" || line.Duration("for") != 5*time.Minute {
		t.Errorf("unexpected log line of the proactive reclaim: %v", line.Fields)
	}
	vain := 0 // a first one of a few MiB may free enough
	for _, l := range n.agentLog() {
		if l.Msg == "reclaimed memory" && l.Fields["effective"] == false {
			vain++
		}
	}
	if vain < 2 {
		t.Errorf("proactive reclaim disabled after %d reclaims that freed too little, want at least 2", vain)
	}
	n.expectMemoryAvailable()
	n.expectNoEviction()
}

// The agent ends a fast leak as fast as without swap: the kill does not wait for a reclaim in
// progress.
func TestSqueezingDelaysNoKill(t *testing.T) {
	n := startNode(t)
	n.zram(512 * mib)
	n.holding(vm.NewPod("sleeper", "512Mi", "", "alloc -size 200Mi"), 200*mib)
	n.startAgent(config("evictionHard: {memory.available: 100Mi}"))
	n.fillTo(90 * mib)
	// Slow enough for a proactive reclaim, then fast. With a request, because BestEffort pods get CPU
	// time last: on a slow machine the leak was so slow that the reclaim averted the eviction.
	leaker := n.run(vm.NewPod("leaker", "1Mi", "", "alloc -rate 20Mi -size 60Mi + alloc -rate 10Mi -size 10Mi + alloc -rate 60Mi -size 2Gi"))
	stop := n.watch(leaker)
	n.dies(leaker)
	seen := stop()
	n.expectMemoryAvailable()
	evicted := n.evictedFor("memory.available", leaker)
	if took := elapsed(seen.Crossed, seen.Empty); seen.Crossed != 0 && (seen.Empty == 0 || took > 2*time.Second) {
		t.Errorf("pod died %v after the threshold was met", took)
	}
	t.Logf("crossed to empty %v; %v", elapsed(seen.Crossed, seen.Empty), evicted.Fields["crossedToKill"])
	for _, l := range n.agentLog() {
		if l.Msg == "reclaimed memory" {
			t.Logf("asked for %.0f MiB, stopped %v", number(l, "requested")/mib, l.Fields["stopped"])
		}
	}
}
