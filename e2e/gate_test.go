package e2e

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/e2e/vm"
)

// The gate rejects an evicted pod that its owner starts again while the pressure lasts, and admits
// it afterwards.
func TestAnEvictedPodIsKeptOut(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("")) // whose pressure is over soon after it was last seen: until then BestEffort pods are refused anyway
	n.agentLogs("runtime events connected", 1)
	victim := leakerBesideOthers(n)
	victim.Expected = vm.Any // its cgroup will have a new pod in it
	n.agentLogs("evicted", 1)
	if _, err := n.Run(n.ctx, victim.Object); err == nil || !strings.Contains(err.Error(), "jettison") || !strings.Contains(err.Error(), "low on resource: memory") {
		t.Fatalf("start directly after the eviction = %v, want the gate's rejection", err)
	}
	n.agentLogs("evicted pod rejected", 1)
	victim.Object.Spec.Containers[0].Args = []string{"sleep"}
	n.until("it is let in again", func() error {
		_, err := n.Run(n.ctx, victim.Object)
		return err
	})
}

// A pod that is being evicted gets no new container in its sandbox: a kubelet would restart a
// container there that ends within the grace period.
func TestAPodThatIsBeingEvictedGetsNoContainer(t *testing.T) {
	n := startNode(t)
	n.startAgent(config(`evictionSoft: {memory.available: 250Mi}
evictionSoftGracePeriod: {memory.available: 1s}
evictionMaxPodGracePeriod: 20`))
	n.agentLogs("runtime events connected", 1)
	n.fillTo(250*mib - defaultThreshold + 90*mib)
	holder := n.run(vm.NewPod("holder", "", "", "on-sigterm -after 15s /beat/sigterm + alloc -rate 30Mi -size 160Mi"))
	side := v1.Container{Name: "side", Image: vm.ImageWorkload, Args: []string{"sleep"}}
	if err := holder.AddContainer(n.ctx, side); err != nil {
		t.Fatalf("add a container before the eviction: %v", err)
	}
	n.sigtermTime(holder)
	side.Name = "again"
	if err := holder.AddContainer(n.ctx, side); err == nil || !strings.Contains(err.Error(), "jettison holds pod default/holder off") {
		t.Errorf("add a container during the eviction = %v, want the gate's rejection", err)
	}
	n.agentLogs("evicted pod rejected", 1)
	n.dies(holder)
}

// pressed makes the agent report MemoryPressure without evictions: a soft threshold that is always
// met, with a grace period that does not end.
const pressed = "evictionSoft: {memory.available: 99%}\nevictionSoftGracePeriod: {memory.available: 24h}"

// withPriority returns a pod with a pod object that a client sends before the pod starts.
func (n *node) withPriority(name string, priority int32) *v1.Pod {
	n.t.Helper()
	object := vm.NewPod(name, "", "", "sleep")
	object.UID = types.UID("00000000-0000-4000-8000-" + fmt.Sprintf("%012d", priority))
	object.Spec.Priority = &priority
	if _, err := n.API().PutPods(n.ctx, []*v1.Pod{object}); err != nil {
		n.t.Fatal(err)
	}
	return object
}

// Under memory pressure the gate rejects a BestEffort pod, with the kubelet's message. It admits a
// Burstable and a critical one.
func TestPromiseUnderPressureOnlyWhatMayRunIsLetIn(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("%s", pressed))
	n.agentLogs("runtime events connected", 1)
	n.condition("MemoryPressure", true)
	const want = "Evicted: Pod was rejected: The node had condition: [MemoryPressure]. "
	if _, err := n.Run(n.ctx, vm.NewPod("besteffort", "", "", "sleep")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("start of a BestEffort pod = %v, want %q", err, want)
	}
	n.agentLogs("pod rejected", 1)
	n.run(vm.NewPod("burstable", "16Mi", "", "sleep"))
	n.run(n.withPriority("critical", 2_000_000_000))
	if _, err := n.Run(n.ctx, n.withPriority("high", 1_999_999_999)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("start of a pod just below critical priority = %v, want %q", err, want)
	}
	g := n.state().Gate
	if g == nil || !g.Asked || !g.Enforced || g.Refused != 2 || g.Reasons["Evicted"] != 2 || g.Answers.Count == 0 {
		t.Fatalf("gate state = %+v, want two rejections", g)
	}
	t.Logf("answers: %+v", g.Answers)
}

// A pod's container cannot be created, because its program does not exist. CRI-O reports no end of it
// to the gate. The pod holds no resources once its sandbox is stopped.
func TestAPodWithAFailedContainerHoldsNothingAtItsEnd(t *testing.T) {
	n := startNode(t)
	n.startAgent(config(""))
	n.agentLogs("runtime events connected", 1)
	before := n.room()
	failing := n.run(vm.NewPod("failing", "200Mi", "", "sleep"))
	failing.Expected = vm.Dies
	n.until("the pod holds its request", func() error {
		if room := n.room(); room > before-190*mib {
			return fmt.Errorf("room for %d bytes, before the pod %d", room, before)
		}
		return nil
	})
	for range 3 {
		if err := failing.AddContainer(n.ctx, v1.Container{Name: "broken", Image: vm.ImageWorkload, Command: []string{"/no/such/program"}}); err == nil {
			t.Fatal("a container without a program runs, want an error")
		}
	}
	if err := n.StopSandbox(n.ctx, failing.Sandbox); err != nil {
		t.Fatal(err)
	}
	n.until("the pod holds nothing", func() error {
		if room := n.room(); room < before {
			return fmt.Errorf("room for %d bytes, before the pod %d", room, before)
		}
		return nil
	})
}

// A pod's only container has ended when the agent restarts. containerd does not list ended
// containers to the new agent, which admits the pod's next container although its gate is closed
// to new pods.
func TestAPodWhoseContainerEndedKeepsItsPlace(t *testing.T) {
	n := startNode(t)
	n.startAgent(config(""))
	n.agentLogs("runtime events connected", 1)
	ended := n.run(vm.NewPod("ended", "", "", "sleep"))
	n.shell("kill -9 " + n.mainProcess(ended))
	n.until("the runtime knows that the container ended", func() error { return ended.Ended(n.ctx, 137) })
	n.shell("kill -9 " + n.mainProcess(n.agent.Pod))
	if err := n.agent.Remove(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.startAgent(config("%s", pressed))
	n.agentLogs("runtime events connected", 1)
	n.condition("MemoryPressure", true)
	const want = "Evicted: Pod was rejected: The node had condition: [MemoryPressure]. "
	if _, err := n.Run(n.ctx, vm.NewPod("new", "", "", "sleep")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("start of a new pod = %v, want %q", err, want)
	}
	if err := ended.RestartContainer(n.ctx, 0); err != nil {
		t.Fatalf("restart of the ended container = %v, want it admitted", err)
	}
	if g := n.state().Gate; g == nil || !g.Enforced || g.Refused != 1 {
		t.Errorf("gate state = %+v, want one rejection", g)
	}
}

// The gate rejects a pod that the node has no room for, and admits it when there is room. A
// disabled gate rejects no pod.
func TestTheGateKeepsOutWhatDoesNotFit(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("maxPods: 3"))
	n.agentLogs("runtime events connected", 1)
	first := n.run(vm.NewPod("first", "16Mi", "", "sleep")) // in addition to the agent's pod
	n.run(vm.NewPod("second", "16Mi", "", "sleep"))
	const want = "OutOfpods: Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"
	third := vm.NewPod("third", "16Mi", "", "sleep")
	if _, err := n.Run(n.ctx, third); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("start of a pod that does not fit = %v, want %q", err, want)
	}
	first.Expected = vm.Any
	if err := first.Remove(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.until("there is room for the third", func() error {
		_, err := n.Run(n.ctx, third)
		return err
	})
	if err := n.agent.Remove(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.startAgent(config("maxPods: 3\ngate: false"))
	n.agentLogs("runtime events connected", 1)
	n.run(vm.NewPod("fourth", "16Mi", "", "sleep"))
	n.run(vm.NewPod("fifth", "16Mi", "", "sleep"))
	if g := n.state().Gate; g.Asked || g.Refused != 0 {
		t.Errorf("state of a disabled gate = %+v, want no rejection", g)
	}
}

// The agent is killed and restarted while 20 pods start. None is lost or stuck.
func TestTheAgentComesAndGoesWhilePodsStart(t *testing.T) {
	n := startNode(t)
	n.startAgent("")
	n.agentLogs("runtime events connected", 1)
	const rounds, pods = 4, 5
	for round := range rounds {
		n.shell(fmt.Sprintf("(sleep 0.%d; kill -9 %s) > /dev/null 2>&1 &", 2+2*round, n.mainProcess(n.agent.Pod)))
		for i := range pods {
			n.run(vm.NewPod(fmt.Sprintf("pod%d-%d", round, i), "4Mi", "", "sleep"))
		}
		if err := n.agent.Remove(n.ctx); err != nil {
			t.Fatal(err)
		}
		n.startAgent("")
	}
	n.until("the gate is back, and knows all", func() error {
		s, err := n.API().State(n.ctx)
		if err != nil {
			return err
		}
		if s.Gate == nil || !s.Gate.Asked || s.Pods.Runtime < rounds*pods+1 {
			return fmt.Errorf("gate %+v, %d pods", s.Gate, s.Pods.Runtime)
		}
		return nil
	})
}

// With a kubelet running, the gate admits pods that the kubelet admitted, whatever its own
// decision. Here its own configuration rejects every pod.
func TestKubeletsPodsAreLetIn(t *testing.T) {
	n := startKubeletNode(t, vm.KubeletOptions{})
	n.startAgent(config("%s", pressed+"\nmaxPods: 1"))
	n.agentLogs("runtime events connected", 1)
	n.condition("MemoryPressure", true)
	n.runStatic(vm.NewPod("besteffort", "", "", "sleep"))
	n.runStatic(vm.NewPod("burstable", "16Mi", "", "sleep"))
	g := n.state().Gate
	if g == nil || g.Enforced || g.Refused != 0 || g.Observed == 0 {
		t.Errorf("gate state with a kubelet = %+v, want no rejection", g)
	}
}
