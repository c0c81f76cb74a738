package e2e

import (
	"fmt"
	"strings"
	"testing"

	"jettison/e2e/vm"
)

// deadOf counts the pods that have no process left.
func (n *node) deadOf(pods []*vm.Pod) (dead int) {
	n.t.Helper()
	for _, p := range pods {
		alive, err := p.Populated(n.ctx)
		if err != nil {
			n.t.Fatal(err)
		}
		if !alive {
			dead++
		}
	}
	return dead
}

// A process outside the pods leaks the node's memory. After at most three evictions without effect
// the breaker opens, and its reason names the growing cgroup.
func TestALeakOutsideThePodsStopsTheBreaker(t *testing.T) {
	n := startNode(t)
	const threshold, rest = 450 * mib, 120 * mib // the leak ends long before the kernel has to kill
	n.startAgent(config("evictionHard: {memory.available: 450Mi}"))
	var innocent []*vm.Pod
	for i := range 6 {
		p := n.run(vm.NewPod(fmt.Sprintf("innocent-%d", i), "", "", "sleep"))
		p.Expected = vm.Any // the ranking chooses the three
		innocent = append(innocent, p)
	}
	const cgroup = "/sys/fs/cgroup/system.slice/leak.service"
	n.shell("mkdir -p " + cgroup + " && echo +memory > /sys/fs/cgroup/system.slice/cgroup.subtree_control")
	m, err := n.Memory(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	quick, slow := (m.Available()-threshold)/mib-30, int64(threshold-rest)/mib+30
	if quick < 16 {
		t.Fatalf("only %d MiB available before the leak, too few", m.Available()/mib)
	}
	leak, err := n.Start(n.ctx, "/var/log/leak.log", "/bin/sh", "-c", fmt.Sprintf(
		"echo $$ > %s/cgroup.procs && exec /usr/local/bin/workload alloc -size %dMi + alloc -rate 25Mi -size %dMi", cgroup, quick, slow))
	if err != nil {
		t.Fatal(err)
	}
	n.condition("MemoryPressure", true)
	var stopped vm.LogLine
	n.until("the agent stops evicting", func() error {
		for _, l := range n.agentLog() {
			if reason, _ := l.Fields["reason"].(string); l.Msg == "threshold met without eviction" && strings.Contains(reason, "circuit breaker open") {
				stopped = l
				return nil
			}
		}
		return fmt.Errorf("%d of %d innocent pods are dead", n.deadOf(innocent), len(innocent))
	})
	if reason := stopped.Fields["reason"].(string); !strings.Contains(reason, "system.slice") && !strings.Contains(reason, "leak") {
		t.Errorf("breaker reason = %q, want the name of the growing cgroup", reason)
	}
	dead := n.deadOf(innocent)
	// The leak continues, and no other pod dies.
	n.until("the leak has come to its end", func() error {
		return n.holds(strings.TrimPrefix(cgroup, "/sys/fs/cgroup/"), (quick+slow)*mib)
	})
	if now := n.deadOf(innocent); now != dead || dead == 0 || dead > 3 {
		t.Errorf("%d innocent pods were dead when the breaker opened, %d are now, want at most 3", dead, now)
	}
	t.Logf("%d of %d innocent pods died, then: %v", dead, len(innocent), stopped.Fields["reason"])
	n.expectSurvivors(innocent)
	n.shell(fmt.Sprintf("kill -9 %d", leak))
	n.condition("MemoryPressure", false)
	if m, err := n.Memory(n.ctx); err != nil || m.Available() < threshold {
		t.Errorf("%d MiB available after the leak's end (%v)", m.Available()/mib, err)
	}
}

// expectSurvivors makes the audit expect that the living pods stay alive.
func (n *node) expectSurvivors(pods []*vm.Pod) {
	n.t.Helper()
	for _, p := range pods {
		if alive, err := p.Populated(n.ctx); err != nil {
			n.t.Fatal(err)
		} else if p.Expected = vm.Dies; alive {
			p.Expected = vm.Lives
		}
	}
}
