package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// leaker returns a BestEffort pod that leaks 20 MiB/s without end.
func leaker() *v1.Pod { return vm.NewPod("leaker", "", "", "alloc -rate 20Mi -size 4Gi") }

// leakerBesideOthers starts pods of all three QoS classes, one of which leaks 20 MiB/s without end.
func leakerBesideOthers(n *node) *vm.Pod {
	n.holding(vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi"), 32*mib)
	n.holding(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"), 32*mib)
	n.fillTo(160 * mib)
	return n.run(leaker())
}

// A BestEffort pod leaks while a Burstable and a Guaranteed one run. The agent evicts only the
// leaker, before the kernel's OOM killer acts. The node's condition becomes true with the eviction
// and false afterwards.
func TestPromiseTheLeakerAloneIsEvicted(t *testing.T) {
	n := startNode(t)
	n.startAgent(config(""))
	leaker := leakerBesideOthers(n)
	n.dies(leaker)
	n.expectMemoryAvailable()
	line := n.agentLogs("evicted", 1)
	n.expectConditionCycle("MemoryPressure", line)
	if got := line.Fields["victim"]; got != "default/leaker" {
		t.Errorf("evicted pod in the agent's log = %v, want the leaker", got)
	}
	t.Logf("crossed to kill %v, kill to memory back %v", line.Duration("crossedToKill"), line.Duration("killToMemoryBack"))
}

// The kubelet's formula counts a pod's active page cache as used: the pages that the pod reads
// repeatedly. If they outlived the pod, they would cost the next pod its life. The threshold is so
// high that the kernel itself has no need to reclaim.
func TestPageCacheGoesWithItsPod(t *testing.T) {
	n := startNode(t)
	if generations := n.shell("cat /sys/kernel/mm/lru_gen/enabled 2>/dev/null || true"); strings.HasSuffix(strings.TrimSpace(generations), "7") {
		t.Skip("this kernel keeps generations of pages (CONFIG_LRU_GEN): pages that are read do not become active")
	}
	n.holding(vm.NewPod("clerk", "16Mi", "", "alloc -size 24Mi"), 24*mib)
	m, err := n.Memory(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	limit := (m.Available() - 220*mib) / mib * mib // the agent uses some, too
	n.startAgent(config("evictionHard: {memory.available: %dMi}", limit/mib))
	reader := n.run(vm.NewPod("reader", "", "", "thrash -size 280Mi /file"))
	n.dies(reader)
	line := n.agentLogs("evicted", 1)
	if got := line.Fields["victim"]; got != "default/reader" {
		t.Errorf("evicted pod in the agent's log = %v, want the reader", got)
	}
	if m, err = n.Memory(n.ctx); err != nil || m.Available() < limit+50*mib {
		t.Errorf("%d MiB available after the eviction, want 50 more than %d (%v)", m.Available()/mib, limit/mib, err)
	}
	t.Logf("kill to memory back %v", line.Duration("killToMemoryBack"))
}

// Without the agent the same load ends in a kernel OOM kill: the scenario above can fail.
func TestWithoutTheAgentTheKernelKills(t *testing.T) {
	n := startNode(t)
	n.oomMeant = true
	// The kernel's defaults lead there too, after minutes of thrashing. With this setting the
	// kernel kills when it cannot keep the last second's working set in memory
	// (Documentation/admin-guide/mm/multigen_lru.rst).
	n.shell("cd /sys/kernel/mm/lru_gen && echo y > enabled && echo 1000 > min_ttl_ms")
	leaker := leakerBesideOthers(n)
	leaker.Expected = vm.Any // the kernel kills one process, not the pod: the sandbox keeps running
	// Poll slowly: each poll loads pages of the guest's init, which the kernel counts as progress,
	// and it does not kill while it makes progress.
	deadline := time.Now().Add(15 * time.Minute)
	for fired := false; !fired; {
		time.Sleep(10 * time.Second)
		var err error
		if fired, err = n.OOMFired(n.ctx); err != nil || time.Now().After(deadline) {
			t.Fatalf("the kernel's OOM killer has not fired (%v)", err)
		}
	}
	kills, err := n.OOMKills(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(kills[0])
}

// The same on the older kernel, end to end.
func TestSmokeTheLeakerAloneIsEvicted(t *testing.T) { TestPromiseTheLeakerAloneIsEvicted(t) }

// A dry run decides and logs, and kills no pod.
func TestPromiseADryRunKillsNothing(t *testing.T) {
	n := startNode(t)
	n.startAgent("", "--dry-run")
	hog := n.fillTo(-20 * mib) // permanently below the threshold
	line := n.agentLogs("would evict", 1)
	if got := line.Fields["victim"]; got != "default/ballast" {
		t.Errorf("victim of the dry run = %v, want the hog", got)
	}
	n.agentLogs("would evict", 2) // ten seconds later, still without an eviction
	if err := hog.Check(n.ctx); err != nil {
		t.Error(err)
	}
}

// containerd is killed and restarted while the agent runs. Afterwards the agent evicts a leaker,
// and the runtime cleans up after it.
func TestPromiseARestartOfTheRuntimeIsSurvived(t *testing.T) {
	n := startNode(t)
	n.startAgent("")
	if err := n.StopRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.StartRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	leaker := leakerBesideOthers(n)
	n.dies(leaker)
	n.agentLogs("evicted", 1)
	n.expectMemoryAvailable()
}

// The runtime is down while a pod leaks. The agent reads from and kills through the kernel
// directly, so the leaker dies, and is cleaned up when the runtime is back.
func TestTheRuntimeIsDownAndTheLeakerGoesAllTheSame(t *testing.T) {
	n := startNode(t)
	n.startAgent("")
	idle := n.run(vm.NewPod("idle", "", "", "sleep"))
	leaker := leakerBesideOthers(n)
	if err := n.StopRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.until("the leaker has no process left", func() error { return n.reads("/sys/fs/cgroup/"+leaker.Cgroup+"/cgroup.events", "populated 0") })
	if err := n.StartRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.dies(leaker)
	// It is the runtime that carries the log, so it is read only now.
	n.agentLogs("runtime unreachable, continuing with kernel data", 1)
	n.agentLogs("evicted", 1)
	n.agentLogs("runtime reachable again", 1)

	// containerd sends no event for the end of a sandbox from before its restart.
	if err := idle.Remove(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.untilLimit(3*time.Minute, "the agent ranks no pod that was removed", func() error {
		outlook, err := n.API().Outlook(n.ctx)
		if err != nil {
			return err
		}
		for _, p := range outlook.Thresholds[0].Ranking {
			if p.Pod == "default/idle" || p.Pod == "default/leaker" {
				return fmt.Errorf("%s is ranked for %s", p.Pod, outlook.Thresholds[0].Signal)
			}
		}
		return nil
	})
}

// The agent stops promptly, and starts again.
func TestTheAgentStopsWhenTold(t *testing.T) {
	n := startNode(t)
	n.startAgent("")
	n.shell("kill -TERM " + n.mainProcess(n.agent.Pod))
	n.agentLogs("stopped", 1)
	n.agent.Expected = vm.Dies
	n.until("the agent's container is over", func() error { return n.agent.Ended(n.ctx, 0) })
	if err := n.agent.Remove(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.startAgent("")
}
