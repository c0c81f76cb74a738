package e2e

import (
	"strings"
	"testing"

	"jettison/e2e/vm"
)

// tasks are the processes and threads of the node, by the kernel's count.
func (n *node) tasks() uint64 {
	n.t.Helper()
	return n.number(`awk '{split($4,a,"/"); print a[2]}' /proc/loadavg`)
}

// A pod forks, and its children do, and theirs. It goes before the node has no process ids left; a neighbour that has many, but not too many, lives.
func TestAForkBombIsEvicted(t *testing.T) {
	// The bomb is bounded, and bounded again as by a kubelet's podPidsLimit, far beyond the threshold.
	n := startNodeWith(t, vm.Options{PodPids: 1200})
	n.shell("echo 2200 > /proc/sys/kernel/pid_max")
	n.startAgent(config(`evictionHard: {memory.available: 100Mi, pid.available: "1300"}`))
	n.run(vm.NewPod("threads", "", "", "threads -count 100"))
	n.run(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"))
	before := n.tasks()
	if before > 700 {
		t.Fatalf("%d tasks before the scenario has begun", before)
	}
	bomb := n.run(vm.NewPod("bomb", "", "", "bomb -generations 10"))
	n.dies(bomb)
	line := n.evictedFor("pid.available", bomb)
	if message, _ := line.Fields["message"].(string); !strings.HasPrefix(message, "The node was low on resource: pids. Threshold quantity: 1300, available: ") {
		t.Errorf("the agent's message is %q", message)
	}
	if after := n.tasks(); after > before+50 {
		t.Errorf("%d tasks before, %d after", before, after)
	}
	n.comesAndGoes("PIDPressure", line)
}
