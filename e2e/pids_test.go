package e2e

import (
	"fmt"
	"strings"
	"testing"

	"jettison/e2e/vm"
)

// tasks returns the number of the node's processes and threads, as the kernel counts them.
func (n *node) tasks() uint64 {
	n.t.Helper()
	return n.number(`awk '{split($4,a,"/"); print a[2]}' /proc/loadavg`)
}

// A pod forks recursively. The agent evicts it before the node runs out of process ids. A neighbour
// with many processes, but not too many, lives.
func TestAForkBombIsEvicted(t *testing.T) {
	// The bomb is bounded, and bounded again as by a kubelet's podPidsLimit, far beyond the
	// threshold.
	n := startNodeWith(t, vm.Options{PodPids: 1200})
	n.shell("echo 2200 > /proc/sys/kernel/pid_max")
	n.startAgent(config(`evictionHard: {memory.available: 100Mi, pid.available: "1300"}`))
	n.run(vm.NewPod("threads", "", "", "threads -count 100"))
	n.run(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"))
	before := n.tasks()
	if before > 700 {
		t.Fatalf("%d tasks before the scenario starts, too many", before)
	}
	bomb := n.run(vm.NewPod("bomb", "", "", "bomb -generations 10"))
	n.dies(bomb)
	line := n.evictedFor("pid.available", bomb)
	if message, _ := line.Fields["message"].(string); !strings.HasPrefix(message, "The node was low on resource: pids. Threshold quantity: 1300, available: ") {
		t.Errorf("eviction message = %q, want the kubelet's", message)
	}
	if after := n.tasks(); after > before+50 {
		t.Errorf("%d tasks before the bomb, %d after its eviction", before, after)
	}
	n.expectConditionCycle("PIDPressure", line)
}

// A pod forks recursively up to the limit of all pods' tasks, which the agent itself wrote. The node
// has thousands of process IDs left, but no pod can fork. The agent evicts the pod by what the
// pods' limit leaves.
func TestAForkBombAtThePodsLimitIsEvicted(t *testing.T) {
	n := startNode(t)
	const limit, threshold = 900, 400
	most := n.number("cat /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max | sort -n | head -n 1")
	n.startAgent(config(`writeAllocatable: true
kubeReserved: {pid: "%d"}
evictionHard: {memory.available: 100Mi, pid.available: "%d"}`, most-limit, threshold))
	n.has("the pods' tasks are limited", limited{"kubepods/pids.max": fmt.Sprint(limit)})
	n.run(vm.NewPod("threads", "", "", "threads -count 100"))
	n.run(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"))
	before := n.tasks()
	if most < limit+before+10*threshold {
		t.Fatalf("node's limit = %d tasks with %d before the scenario, want it far from the pods' %d", most, before, limit)
	}
	bomb := n.run(vm.NewPod("bomb", "", "", "bomb -generations 10"))
	n.dies(bomb)
	line := n.evictedFor("pid.available", bomb)
	prefix := fmt.Sprintf("The node was low on resource: pids. Threshold quantity: %d, available: ", threshold)
	if message, _ := line.Fields["message"].(string); !strings.HasPrefix(message, prefix) {
		t.Errorf("eviction message = %q, want the kubelet's", message)
	}
	if after := n.tasks(); after > before+50 {
		t.Errorf("%d tasks before the bomb, %d after its eviction", before, after)
	}
	n.expectConditionCycle("PIDPressure", line)
}
