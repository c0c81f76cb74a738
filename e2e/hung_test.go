package e2e

import (
	"fmt"
	"strings"
	"testing"

	"jettison/e2e/guestapi"
	"jettison/e2e/vm"
)

// runtimeIsStopped asserts that the runtime is stopped, as HangRuntime left it, by the kernel's
// state (proc_pid_stat(5)).
func (n *node) runtimeIsStopped() {
	n.t.Helper()
	stat := n.shell("cat /proc/" + n.RuntimePID() + "/stat")
	if state := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])[0]; state != "T" {
		n.t.Fatalf("the runtime is in state %s, want T (stopped)", state)
	}
}

// leakAtFullSpeed starts a pod that leaks, and waits until it has no process left and the memory is back,
// by the guest's own sampler. It calls meanwhile when the pod leaks.
func (n *node) leakAtFullSpeed(meanwhile func()) (*vm.Pod, guestapi.Sample) {
	n.t.Helper()
	p, stop := n.crossing("leaker", "alloc -rate 20Mi -size 4Gi", defaultThreshold)
	meanwhile()
	n.until("the leaker has no process left", func() error { return n.reads("/sys/fs/cgroup/"+p.Cgroup+"/cgroup.events", "populated 0") })
	n.until("the memory is back", func() error {
		m, err := n.Memory(n.ctx)
		if err == nil && m.Available() < defaultThreshold {
			err = fmt.Errorf("only %d MiB available", m.Available()/mib)
		}
		return err
	})
	p.Expected = vm.Dies
	return p, stop()
}

// The runtime is stopped while a pod leaks. The memory comes back as with a working runtime. When
// the runtime continues, the agent cleans up the pod's leftovers. The agent is not slower
// afterwards.
func TestAHungRuntimeDoesNotKeepTheMemory(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("gate: false")) // the gate would reject the second leaker, of class BestEffort, while MemoryPressure lasts
	n.holding(vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi"), 32*mib)
	n.holding(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"), 32*mib)
	n.fillTo(160 * mib)

	first, well := n.leakAtFullSpeed(func() {})
	n.dies(first)
	n.agentLogs("evicted", 1)
	if err := first.Remove(n.ctx); err != nil {
		t.Fatal(err)
	}

	second, hung := n.leakAtFullSpeed(func() {
		if err := n.HangRuntime(n.ctx); err != nil {
			t.Fatal(err)
		}
	})
	n.runtimeIsStopped() // all that while
	for what, s := range map[string]guestapi.Sample{"well": well, "hung": hung} {
		if s.Crossed == 0 || s.Empty == 0 || s.Back == 0 {
			t.Errorf("%s: times of the sampler = %+v, want all three", what, s)
		}
	}
	took := func(s guestapi.Sample) string {
		return fmt.Sprintf("%v to empty, %v to memory back", elapsed(s.Crossed, s.Empty), elapsed(s.Crossed, s.Back))
	}
	t.Logf("crossed, with a runtime that answers: %s; with one that hangs: %s (sampled every %v at worst)",
		took(well), took(hung), elapsed(0, max(well.MaxGap, hung.MaxGap)))

	if err := n.ResumeRuntime(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.dies(second) // its sandbox is not ready, or removed
	if line := n.agentLogs("evicted", 2); line.Fields["uid"] != string(second.Object.UID) {
		t.Errorf("evicted pod in the agent's log = %v, want the second leaker", line.Fields)
	}
	if err := second.Remove(n.ctx); err != nil {
		t.Fatal(err)
	}

	third, after := n.leakAtFullSpeed(func() {})
	n.dies(third)
	t.Logf("afterwards: %s", took(after))
}
