package e2e

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/api"
	"jettison/e2e/vm"
)

// putPods sends pod objects to the agent.
func (n *node) putPods(pods ...*vm.Pod) {
	n.t.Helper()
	if err := n.PutPods(n.ctx, pods...); err != nil {
		n.t.Fatal(err)
	}
}

// state reads the agent's state.
func (n *node) state() *api.State {
	n.t.Helper()
	s, err := n.API().State(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

// noCondition asserts that the agent has set no condition: a pod's own limit is no pressure on the
// node.
func (n *node) noCondition() {
	n.t.Helper()
	for _, l := range n.agentLog() {
		if l.Msg == "condition changed" {
			n.t.Errorf("agent logged an unexpected line: %v", l.Fields)
		}
	}
}

// The agent evicts a pod that writes more to its emptyDir than the volume's limit, which only its
// pod object has. Neighbours write as much, without a limit or with a higher one.
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
		t.Errorf("eviction message = %q, want %q", line.Fields["message"], want)
	}
	n.awaitNoLeftovers(pods["over"])
	n.awaitFileSystem(rootDir, disk{available: before.available - (64+16)*mib}) // files of the two other pods, and logs
	n.noCondition()
}

// A container's log exceeds the container's limit on ephemeral storage. The agent evicts the pod,
// although its containers together may use more. Neighbours write as much: one with an object
// without limits, and one without an object.
func TestAContainerLogOverItsLimitEndsThePod(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("containerLogMaxSize: 1Gi"))   // rotated logs do not grow
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
		t.Errorf("eviction message = %q, want %q", line.Fields["message"], want)
	}
	n.awaitNoLeftovers(victim)
	for _, p := range []*vm.Pod{told, untold} {
		n.until(p.String()+" has written three times the limit", func() error {
			if size := n.number("wc -c < " + p.LogPath("main")); size < 24*mib {
				return fmt.Errorf("log has %d bytes", size)
			}
			return nil
		})
	}
	n.noCondition()
}

// Pod objects from clients decide: of two pods above their requests, the one with lower priority is
// evicted, although it uses less.
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
	n.expectMemoryAvailable()
	n.evictedFor("memory.available", plain)
	n.condition("MemoryPressure", false)
	s := n.state()
	if len(s.Evicted) != 1 || s.Evicted[0].Pod.UID != string(plain.Object.UID) || s.Evicted[0].Signal != "memory.available" || s.Pods.Objects != 2 {
		t.Errorf("pods in the agent's state = %+v, want both objects", s)
	}
	for _, c := range s.Conditions {
		if c.Status {
			t.Errorf("node condition %s is still true", c.Type)
		}
	}
}
