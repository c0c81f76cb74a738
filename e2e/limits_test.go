package e2e

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/api"
	"jettison/e2e/vm"
)

// putPods hands the objects of pods to the agent.
func (n *node) putPods(pods ...*vm.Pod) {
	n.t.Helper()
	if err := n.PutPods(n.ctx, pods...); err != nil {
		n.t.Fatal(err)
	}
}

// state asks the agent for its state.
func (n *node) state() *api.State {
	n.t.Helper()
	s, err := n.API().State(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

// noCondition asserts that the agent has raised no condition: a pod's own limit is no pressure on the node.
func (n *node) noCondition() {
	n.t.Helper()
	for _, l := range n.agentLog() {
		if l.Msg == "condition changed" {
			n.t.Errorf("the agent says %v", l.Fields)
		}
	}
}

// A pod writes more to its emptyDir than the volume's limit, which only its object tells, and goes; neighbours write as much,
// without a limit or with a higher one.
func TestAnEmptyDirOverItsLimitEndsThePod(t *testing.T) {
	n := startNode(t)
	n.startAgent(config(""))
	before := n.disk(rootDir)
	pods := map[string]*vm.Pod{}
	for name, limit := range map[string]string{"over": "16Mi", "under": "64Mi", "unlimited": ""} {
		source := v1.EmptyDirVolumeSource{}
		if limit != "" {
			quantity := resource.MustParse(limit)
			source.SizeLimit = &quantity
		}
		pods[name] = n.run(withEmptyDir(vm.NewPod(name, "", "", "fill -rate 8Mi -size 32Mi /data/file"), "data", source))
	}
	n.putPods(pods["over"], pods["under"], pods["unlimited"])
	n.dies(pods["over"])
	line := n.evictedFor("emptydirfs.limit", pods["over"])
	if want := `Usage of EmptyDir volume "data" exceeds the limit "16Mi". `; line.Fields["message"] != want {
		t.Errorf("the agent's message is %q, want %q", line.Fields["message"], want)
	}
	n.nothingLeft(pods["over"])
	n.isBack(rootDir, disk{available: before.available - (64+16)*mib}) // what the two others have written, and logs
	n.noCondition()
}

// A container's log grows over the container's limit on ephemeral storage, and the pod goes, although all its containers together
// may use more. Neighbours write as much: one whose object has no limits, and one that nobody told of.
func TestAContainerLogOverItsLimitEndsThePod(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("containerLogMaxSize: 1Gi"))   // logs that are rotated do not grow
	const logs = "log -rate 2Mi -line 8000 -size 24Mi" // long lines: each is work for the runtime
	limited := vm.NewPod("limited", "", "", logs)
	limited.Spec.Containers = append(limited.Spec.Containers, v1.Container{Name: "side", Image: vm.ImageWorkload, Args: []string{"sleep"}})
	for i, limit := range []string{"8Mi", "256Mi"} {
		limited.Spec.Containers[i].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(limit)}
	}
	told, untold := n.run(vm.NewPod("told", "", "", logs)), n.run(vm.NewPod("untold", "", "", logs))
	victim := n.run(limited)
	n.putPods(victim, told)
	n.dies(victim)
	line := n.evictedFor("ephemeralcontainerfs.limit", victim)
	if want := `Container main exceeded its local ephemeral storage limit "8Mi". `; line.Fields["message"] != want {
		t.Errorf("the agent's message is %q, want %q", line.Fields["message"], want)
	}
	n.nothingLeft(victim)
	for _, p := range []*vm.Pod{told, untold} {
		n.until(p.String()+" has written three times the limit", func() error {
			if size := n.number("wc -c < " + p.LogPath("main")); size < 24*mib {
				return fmt.Errorf("%d bytes", size)
			}
			return nil
		})
	}
	n.noCondition()
}

// What clients say of pods decides: of two that use more than they asked for, the one of lower priority goes, although it uses
// less.
func TestMemoryPrioritiesOfPodObjectsDecide(t *testing.T) {
	n := startNode(t)
	n.startAgent(config(""))
	prioritised := func(name string, priority int32, size int) *vm.Pod {
		object := vm.NewPod(name, "", "", fmt.Sprintf("alloc -size %dMi", size))
		object.Spec.Priority = &priority
		return n.holding(object, int64(size)*mib)
	}
	important, plain := prioritised("important", 1000, 200), prioritised("plain", 10, 120)
	n.putPods(important, plain)
	n.fillTo(-30 * mib)
	n.dies(plain)
	n.memoryIsBack()
	n.evictedFor("memory.available", plain)
	n.condition("MemoryPressure", false)
	s := n.state()
	if len(s.Evicted) != 1 || s.Evicted[0].Pod.UID != string(plain.Object.UID) || s.Evicted[0].Signal != "memory.available" || s.Pods.Objects != 2 {
		t.Errorf("the agent's state: %+v", s)
	}
	for _, c := range s.Conditions {
		if c.Status {
			t.Errorf("%s is true still", c.Type)
		}
	}
}
