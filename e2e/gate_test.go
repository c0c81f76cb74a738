package e2e

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/e2e/vm"
)

// An evicted pod that its owner starts again is kept out while the pressure that it died for is fresh, and let in afterwards.
func TestAnEvictedPodIsKeptOut(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("")) // whose pressure is over soon after it was last seen: until then BestEffort pods are refused anyway
	n.agentSays("runtime events connected", 1)
	victim := leakerBesideOthers(n)
	victim.Fate = vm.Any // its cgroup will have another life in it
	n.agentSays("evicted", 1)
	if _, err := n.Run(n.ctx, victim.Object); err == nil || !strings.Contains(err.Error(), "jettison") || !strings.Contains(err.Error(), "low on resource: memory") {
		t.Fatalf("started again at once: %v", err)
	}
	n.agentSays("evicted pod refused", 1)
	victim.Object.Spec.Containers[0].Args = []string{"sleep"}
	n.until("it is let in again", func() error {
		_, err := n.Run(n.ctx, victim.Object)
		return err
	})
}

// A pod that is being evicted gets no container any more either, in the sandbox that it still has: what ends in its grace period would be
// started anew there, as by a kubelet.
func TestAPodThatIsBeingEvictedGetsNoContainer(t *testing.T) {
	n := startNode(t)
	n.startAgent(config(`evictionSoft: {memory.available: 250Mi}
evictionSoftGracePeriod: {memory.available: 1s}
evictionMaxPodGracePeriod: 20`))
	n.agentSays("runtime events connected", 1)
	n.fillTo(250*mib - defaultThreshold + 90*mib)
	holder := n.run(vm.NewPod("holder", "", "", "on-sigterm -after 15s /beat/sigterm + alloc -rate 30Mi -size 160Mi"))
	side := v1.Container{Name: "side", Image: vm.ImageWorkload, Args: []string{"sleep"}}
	if err := holder.AddContainer(n.ctx, side); err != nil {
		t.Fatalf("before: %v", err)
	}
	n.toldAt(holder)
	side.Name = "again"
	if err := holder.AddContainer(n.ctx, side); err == nil || !strings.Contains(err.Error(), "jettison holds pod default/holder off") {
		t.Errorf("a container while it is being stopped: %v", err)
	}
	n.agentSays("evicted pod refused", 1)
	n.dies(holder)
}

// pressed has the agent say MemoryPressure and evict nobody: a soft threshold that is always met, and whose grace period does not end.
const pressed = "evictionSoft: {memory.available: 99%}\nevictionSoftGracePeriod: {memory.available: 24h}"

// withPriority is a pod whose object a client has put before it is started.
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

// Under memory pressure the runtime is refused a BestEffort pod, with the kubelet's message; a Burstable one runs, and a critical one.
func TestPromiseUnderPressureOnlyWhatMayRunIsLetIn(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("%s", pressed))
	n.agentSays("runtime events connected", 1)
	n.condition("MemoryPressure", true)
	const want = "Evicted: Pod was rejected: The node had condition: [MemoryPressure]. "
	if _, err := n.Run(n.ctx, vm.NewPod("besteffort", "", "", "sleep")); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("BestEffort: %v, want %q", err, want)
	}
	n.agentSays("pod rejected", 1)
	n.run(vm.NewPod("burstable", "16Mi", "", "sleep"))
	n.run(n.withPriority("critical", 2_000_000_000))
	if _, err := n.Run(n.ctx, n.withPriority("high", 1_999_999_999)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("not quite critical: %v, want %q", err, want)
	}
	g := n.state().Gate
	if g == nil || !g.Asked || !g.Enforced || g.Refused != 2 || g.Reasons["Evicted"] != 2 || g.Answers.Count == 0 {
		t.Fatalf("state %+v", g)
	}
	t.Logf("answers: %+v", g.Answers)
}

// More than the node has room for is refused, and runs once there is room. A gate that is switched off refuses nothing.
func TestTheGateKeepsOutWhatDoesNotFit(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("maxPods: 3"))
	n.agentSays("runtime events connected", 1)
	first := n.run(vm.NewPod("first", "16Mi", "", "sleep")) // beside the agent's own
	n.run(vm.NewPod("second", "16Mi", "", "sleep"))
	const want = "OutOfpods: Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"
	third := vm.NewPod("third", "16Mi", "", "sleep")
	if _, err := n.Run(n.ctx, third); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v, want %q", err, want)
	}
	first.Fate = vm.Any
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
	n.agentSays("runtime events connected", 1)
	n.run(vm.NewPod("fourth", "16Mi", "", "sleep"))
	n.run(vm.NewPod("fifth", "16Mi", "", "sleep"))
	if g := n.state().Gate; g.Asked || g.Refused != 0 {
		t.Errorf("state %+v", g)
	}
}

// The agent is killed and comes back while 20 pods start: none is lost, none is stuck.
func TestTheAgentComesAndGoesWhilePodsStart(t *testing.T) {
	n := startNode(t)
	n.startAgent("")
	n.agentSays("runtime events connected", 1)
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

// Beside a kubelet the gate lets in what that has admitted, whatever it would say itself: here it says that nothing may run.
func TestKubeletsPodsAreLetIn(t *testing.T) {
	n := startKubeletNode(t, vm.KubeletOptions{})
	n.startAgent(config("%s", pressed+"\nmaxPods: 1"))
	n.agentSays("runtime events connected", 1)
	n.condition("MemoryPressure", true)
	n.runStatic(vm.NewPod("besteffort", "", "", "sleep"))
	n.runStatic(vm.NewPod("burstable", "16Mi", "", "sleep"))
	g := n.state().Gate
	if g == nil || g.Enforced || g.Refused != 0 || g.Observed == 0 {
		t.Errorf("state %+v", g)
	}
}
