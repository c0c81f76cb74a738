package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"jettison/e2e/guestapi"
	"jettison/e2e/vm"
)

// outsideMessage is the agent's log line for a node with containers outside their pods' cgroups.
const outsideMessage = "containers outside their pods' cgroups"

// The kubelet uses the cgroup driver systemd and the runtime cgroupfs (kubernetes#106514): each pod's
// slice is empty, and its containers run below the runtime's parent.
func TestContainersOfSplitDriversAreEvicted(t *testing.T) {
	needsContainerd(t, "with the driver cgroupfs it rejects pods whose parent is a slice")
	n := startNodeWith(t, vm.Options{Systemd: true, Layout: vm.SplitDrivers})
	n.evictsOutside(func(p *vm.Pod) {
		if err := n.reads("/sys/fs/cgroup/"+p.Cgroup+"/cgroup.events", "populated 0"); err != nil {
			t.Errorf("slice of %s: %v, want it to exist without processes", p, err)
		}
		if !strings.HasPrefix(p.Main(), "system.slice/") {
			t.Errorf("cgroup of the container of %s = %s, want it below the parent of the runtime's cgroup", p, p.Main())
		}
	})
}

// A kubelet with cgroupsPerQOS: false gives pods no cgroups, and the runtime no parent: containerd runs
// all containers below /k8s.io, CRI-O below /crio.
func TestContainersWithoutPodCgroupsAreEvicted(t *testing.T) {
	n := startNodeWith(t, vm.Options{Layout: vm.NoPodCgroups})
	n.evictsOutside(func(p *vm.Pod) {
		n.shell("test ! -e /sys/fs/cgroup/" + p.Cgroup)
		want := "k8s.io/" + p.Containers[0]
		if n.Runtime == guestapi.CRIO {
			want = "crio/crio-" + p.Containers[0]
		}
		if p.Main() != want {
			t.Errorf("cgroup of the container of %s = %s, want %s", p, p.Main(), want)
		}
	})
}

// evictsOutside asserts on a node with containers outside their pods' cgroups that the agent evicts
// the leaker alone, that a pod evicted for a soft threshold keeps its grace period, that the agent
// logs the layout once, and that jettison check fails. layout asserts where a pod's containers run.
func (n *node) evictsOutside(layout func(*vm.Pod)) {
	n.t.Helper()
	n.configured("1", config("gate: false"))
	n.startAgent("")
	for _, p := range []*vm.Pod{
		n.holding(vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi"), 32*mib),
		n.holding(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"), 32*mib),
		n.holding(vm.NewPod("besteffort", "", "", "alloc -size 32Mi"), 32*mib), // only the leaker uses more
		n.fillTo(190 * mib), n.agent.Pod,
	} {
		layout(p)
	}
	line := n.agentLogs(outsideMessage, 1)
	n.t.Logf("agent logged %v", line.Fields)
	n.checkFails("outside the pods' cgroups", "different cgroup drivers", "set the kubelet's cgroupDriver to the runtime's (cgroupfs)")

	leaker, stop := n.crossing("leaker", "alloc -rate 20Mi -size 4Gi", defaultThreshold)
	n.dies(leaker)
	seen := stop()
	n.expectMemoryAvailable()
	line = n.evictedFor("memory.available", leaker)
	n.endedWith(leaker, 137)
	n.condition("MemoryPressure", false)
	n.t.Logf("hard threshold: crossed to kill %v by the agent's log, to empty %v by the sampler", line.Duration("crossedToKill"),
		elapsed(seen.Crossed, seen.Empty))

	n.keepsGracePeriod()
	count := 0
	for _, l := range n.agentLog() {
		if l.Msg == outsideMessage {
			count++
		}
	}
	if count != 1 {
		n.t.Errorf("agent logged %q %d times, want once", outsideMessage, count)
	}
}

// keepsGracePeriod sets a soft threshold and asserts that a pod which crosses it gets SIGTERM and the
// time to end in order.
func (n *node) keepsGracePeriod() {
	n.t.Helper()
	const grace, orderly = 2 * time.Second, 3 * time.Second
	m, err := n.Memory(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	soft := m.Available()/mib - 60
	n.configured("2", config(`gate: false
evictionHard: {memory.available: 100Mi}
evictionSoft: {memory.available: %dMi}
evictionSoftGracePeriod: {memory.available: %v}
evictionMaxPodGracePeriod: 30`, soft, grace))
	n.agentLogs("configuration reloaded", 1)
	holder, stop := n.crossing("holder", fmt.Sprintf("on-sigterm -after %v /beat/sigterm + alloc -rate 30Mi -size 110Mi", orderly), soft*mib)
	told := n.sigtermTime(holder)
	n.dies(holder)
	seen := stop()
	if waited := elapsed(seen.Crossed-seen.MaxGap, told); seen.Crossed == 0 || waited < grace || waited > grace+10*time.Second {
		n.t.Errorf("SIGTERM came %v after the soft threshold was met, want %v", waited, grace)
	}
	if took := elapsed(told, seen.Empty); took < orderly {
		n.t.Errorf("container was empty %v after SIGTERM, it needs %v", took, orderly)
	}
	n.endedWith(holder, 0)
	if got := n.agentLogs("evicted", 2).Fields["victim"]; got != holder.String() {
		n.t.Errorf("second victim in the agent's log = %v, want %s", got, holder)
	}
	n.t.Logf("soft threshold: crossed to SIGTERM %v, SIGTERM to empty %v", elapsed(seen.Crossed, told), elapsed(told, seen.Empty))
}

// endedWith waits until the runtime reports an exit code for each container of a pod.
func (n *node) endedWith(p *vm.Pod, code int32) {
	n.t.Helper()
	if err := n.Eventually(n.ctx, time.Minute, "the runtime knows how "+p.String()+" ended", func(ctx context.Context) error { return p.Ended(ctx, code) }); err != nil {
		n.t.Error(err)
	}
}

// checkFails asserts that jettison check fails with these texts.
func (n *node) checkFails(texts ...string) {
	n.t.Helper()
	_, err := n.agent.Exec(n.ctx, "/jettison", "check")
	for _, want := range texts {
		if err == nil || !strings.Contains(err.Error(), want) {
			n.t.Errorf("jettison check: error = %v, want it to contain %q", err, want)
		}
	}
	n.t.Logf("jettison check: %v", err)
}

// A process of a container is moved into the cgroup of the runtime, its shims or monitors, and the
// node's init. The agent kills that process alone there.
func TestAProcessInTheRuntimesCgroupIsEvicted(t *testing.T) {
	n := startNode(t)
	n.startAgent("")
	n.holding(vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi"), 32*mib)
	n.holding(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"), 32*mib)
	n.holding(vm.NewPod("besteffort", "", "", "alloc -size 48Mi"), 48*mib) // only the leaker's process uses more
	n.fillTo(160 * mib)
	leaker := n.run(vm.NewPod("leaker", "", "", "leak /beat/orders"))
	pid := n.mainProcess(leaker)
	runtime := strings.TrimSpace(n.shell("sed -n 's/^0:://p' /proc/" + n.RuntimePID() + "/cgroup"))
	n.shell("echo " + pid + " > /sys/fs/cgroup" + runtime + "/cgroup.procs")
	if err := n.reads("/sys/fs/cgroup/"+leaker.ContainerCgroup(leaker.Containers[0])+"/cgroup.events", "populated 0"); err != nil {
		t.Fatalf("cgroup of the leaker's container: %v, want it empty", err)
	}
	before := n.runtimeProcesses()
	n.agentLogs(outsideMessage, 1)
	n.checkFails("container "+leaker.Containers[0]+" of pod default/leaker", "moved its process", "restart the pod")

	stop := n.watch(leaker)
	n.shell("echo 20Mi > /run/beats/" + string(leaker.Object.UID) + "/orders")
	n.until("the moved process has ended", func() error {
		_, err := n.Shell(n.ctx, "test ! -e /proc/"+pid)
		return err
	})
	n.dies(leaker)
	seen := stop()
	n.expectMemoryAvailable()
	n.evictedFor("memory.available", leaker)
	n.endedWith(leaker, 137)
	after := n.runtimeProcesses()
	for pid, what := range before {
		if after[pid] == "" && !strings.Contains(what, leaker.Sandbox) && !strings.Contains(what, leaker.Containers[0]) {
			t.Errorf("process %s of the runtime has ended: %s", pid, what)
		}
	}
	if len(before) < 6 {
		t.Errorf("processes of the runtime = %v, want the runtime and five shims or monitors", before)
	}
	t.Logf("crossed to memory back %v", elapsed(seen.Crossed, seen.Back))
}

// runtimeProcesses returns the command lines of the runtime and its shims or monitors by PID.
func (n *node) runtimeProcesses() map[string]string {
	n.t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(n.shell(`cd /proc; for p in [0-9]*; do case $(cat $p/comm 2>/dev/null) in
containerd*|crio|conmon) echo $p $(busybox tr '\0' ' ' < $p/cmdline);; esac; done`)) {
		pid, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		out[pid] = what
	}
	return out
}
