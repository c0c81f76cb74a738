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

// squeezed is the agent's count-th line about memory that it had pods give back.
func (n *node) squeezed(count int) vm.LogLine {
	n.t.Helper()
	line := n.agentSays("reclaimed memory", count)
	n.t.Logf("asked for %.0f MiB of %v, %.0f MiB came back in %v, %.0f KiB were read in again", number(line, "requested")/mib, line.Fields["kind"],
		number(line, "gain")/mib, line.Duration("took"), number(line, "refaulted")/1024)
	return line
}

// number is a field of a line of the agent's log.
func number(l vm.LogLine, field string) float64 {
	v, _ := l.Fields[field].(float64)
	return v
}

// nobodyIsEvicted asserts that the agent has evicted nobody so far.
func (n *node) nobodyIsEvicted() {
	n.t.Helper()
	for _, l := range n.agentLog() {
		if l.Msg == "evicted" || l.Msg == "evicting" {
			n.t.Errorf("%s: %v", l.Msg, l.Fields)
		}
	}
}

// A pod that sleeps holds memory, another one takes more than the node has left above the threshold. With swap in compressed memory the
// sleeper's goes there, and nobody has to go.
func TestSqueezingColdMemoryAvertsAnEviction(t *testing.T) {
	n := startNode(t)
	n.zram(512 * mib)
	n.holding(vm.NewPod("sleeper", "", "", "alloc -size 200Mi"), 200*mib)
	n.startAgent(config("evictionHard: {memory.available: 100Mi}"))
	n.fillTo(60 * mib)
	// 50 MiB more than there are, no faster than an emulated CPU compresses them beside another node on the same machine: 4 MiB a second.
	n.holding(vm.NewPod("worker", "256Mi", "", "alloc -rate 3Mi -size 110Mi"), 100*mib)
	line := n.squeezed(1)
	if line.Fields["kind"] != "anonymous memory" || line.Fields["effective"] != true {
		t.Errorf("%v", line.Fields)
	}
	n.memoryIsBack()
	n.nobodyIsEvicted()
}

// Without swap there is page cache at most, which counts as available before it is reclaimed: the agent tries twice and gives up.
func TestSqueezingTurnsItselfOffWithoutSwap(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("evictionHard: {memory.available: 100Mi}"))
	n.holding(vm.NewPod("reader", "", "", "fill -size 160Mi /layer + sleep"), 160*mib)
	n.shell("sync")
	n.fillTo(defaultThreshold + 20*mib) // twice the threshold is left when the worker begins, and half of that when it is done
	n.holding(vm.NewPod("worker", "256Mi", "", "alloc -rate 4Mi -size 70Mi"), 60*mib)
	line := n.agentSays("proactive reclaim paused", 1)
	if line.Fields["kind"] != "page cache" || line.Duration("for") != 5*time.Minute {
		t.Errorf("%v", line.Fields)
	}
	vain := 0 // a first one of a few MiB may pay
	for _, l := range n.agentLog() {
		if l.Msg == "reclaimed memory" && l.Fields["effective"] == false {
			vain++
		}
	}
	if vain < 2 {
		t.Errorf("it is off after %d squeezes that did not pay", vain)
	}
	n.memoryIsBack()
	n.nobodyIsEvicted()
}

// A leak at full speed is ended as fast as without swap: whatever is being reclaimed, the kill does not wait for it.
func TestSqueezingDelaysNoKill(t *testing.T) {
	n := startNode(t)
	n.zram(512 * mib)
	n.holding(vm.NewPod("sleeper", "512Mi", "", "alloc -size 200Mi"), 200*mib)
	n.startAgent(config("evictionHard: {memory.available: 100Mi}"))
	n.fillTo(90 * mib)
	// Slow enough to be squeezed for, until it is fast.
	leaker := n.run(vm.NewPod("leaker", "", "", "alloc -rate 20Mi -size 60Mi + alloc -rate 10Mi -size 10Mi + alloc -rate 60Mi -size 2Gi"))
	stop := n.watch(leaker)
	n.dies(leaker)
	seen := stop()
	n.memoryIsBack()
	evicted := n.evictedFor("memory.available", leaker)
	if took := since(seen.Crossed, seen.Empty); seen.Crossed != 0 && (seen.Empty == 0 || took > 2*time.Second) {
		t.Errorf("dead %v after the threshold was met", took)
	}
	t.Logf("crossed to empty %v; %v", since(seen.Crossed, seen.Empty), evicted.Fields["crossedToKill"])
	for _, l := range n.agentLog() {
		if l.Msg == "reclaimed memory" {
			t.Logf("asked for %.0f MiB, stopped %v", number(l, "requested")/mib, l.Fields["stopped"])
		}
	}
}
