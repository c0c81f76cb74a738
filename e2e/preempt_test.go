package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/e2e/guestapi"
	"jettison/e2e/vm"
)

// known is a pod whose object a client puts before it is started, with a grace period of two seconds. Its UID tells it from others.
func (n *node) known(pod *v1.Pod, number int, priority int32) *v1.Pod {
	n.t.Helper()
	grace := int64(2)
	pod.UID = types.UID(fmt.Sprintf("10000000-0000-4000-8000-%012d", number))
	pod.Spec.Priority, pod.Spec.TerminationGracePeriodSeconds = &priority, &grace
	if _, err := n.API().PutPods(n.ctx, []*v1.Pod{pod}); err != nil {
		n.t.Fatal(err)
	}
	return pod
}

var ofMemory = regexp.MustCompile(`memory, requested: \d+, used: (\d+), capacity: (\d+)`)

// room is how much memory pods may still request, in bytes, by the agent's own words.
func (n *node) room() int64 {
	n.t.Helper()
	huge := vm.NewPod("huge", "1Ei", "", "sleep")
	huge.UID = "huge"
	answer, err := n.API().Admit(n.ctx, huge)
	m := ofMemory.FindStringSubmatch(answer.Message)
	if err != nil || m == nil {
		n.t.Fatalf("%+v, %v", answer, err)
	}
	used, _ := strconv.ParseInt(m[1], 10, 64)
	capacity, _ := strconv.ParseInt(m[2], 10, 64)
	return capacity - used
}

// crowd is four pods of all classes, and says how much memory is left to others: big alone gives 200Mi.
func (n *node) crowd() (pods map[string]*vm.Pod, room int64) {
	n.t.Helper()
	pods = map[string]*vm.Pod{}
	for i, pod := range []*v1.Pod{
		vm.NewPod("besteffort", "", "", "sleep"), vm.NewPod("small", "60Mi", "", "sleep"), vm.NewPod("big", "200Mi", "", "sleep"),
		vm.NewPod("guaranteed", "64Mi", "64Mi", "sleep"),
	} {
		pods[pod.Name] = n.run(n.known(pod, i, 0))
	}
	n.until("all are known", func() error {
		if s := n.state(); s.Pods.Runtime < len(pods)+1 || s.Pods.Objects < len(pods) {
			return fmt.Errorf("%+v", s.Pods)
		}
		return nil
	})
	return pods, n.room()
}

// A critical pod for which there is no room is refused, the one pod goes that makes enough of it, and no other, and the next try is let in.
// The pod that went is kept out at first, and others do not get the room meanwhile.
func TestPromiseACriticalPodPreemptsTheFewest(t *testing.T) {
	n := startNode(t)
	n.startAgent(config(""))
	n.agentSays("runtime events connected", 1)
	pods, room := n.crowd()
	request := fmt.Sprint(room + 150*mib)
	critical := n.known(vm.NewPod("critical", request, "", "sleep"), 10, 2_000_000_000)
	if _, err := n.Run(n.ctx, n.known(vm.NewPod("ordinary", request, "", "sleep"), 11, 1_999_999_999)); err == nil ||
		!strings.Contains(err.Error(), "OutOfmemory: Pod was rejected: Node didn't have enough resource: memory") || strings.Contains(err.Error(), "room is made") {
		t.Fatalf("one that is not critical: %v", err)
	}
	_, err := n.Run(n.ctx, critical)
	if err == nil || !strings.Contains(err.Error(), "preemption may free resources for it") {
		t.Fatalf("%v", err)
	}
	line := n.agentSays("preemption started", 1)
	if want := "[default/big]"; fmt.Sprint(line.Fields["victims"]) != want {
		t.Errorf("victims %v, want %v", line.Fields["victims"], want)
	}
	n.dies(pods["big"])
	if _, err := n.Run(n.ctx, pods["big"].Object); err == nil || !strings.Contains(err.Error(), "Preempted in order to admit critical pod") {
		t.Errorf("the victim comes back at once: %v", err)
	}
	n.agentSays("preemption succeeded", 1)
	if s := n.state(); s.Gate.RoomMade != 1 || len(s.Gate.Kept) != 1 || s.Gate.Kept[0].Pod.Name != "critical" {
		t.Errorf("state %+v", s.Gate)
	}
	if _, err := n.Run(n.ctx, n.known(vm.NewPod("thief", fmt.Sprint(room+1), "", "sleep"), 12, 0)); err == nil || !strings.Contains(err.Error(), "OutOfmemory") {
		t.Errorf("another one takes the room: %v", err)
	}
	n.run(critical)
	evicted := n.state().Evicted
	if len(evicted) != 1 || evicted[0].Signal != "preempted" || evicted[0].Reason != "Preempting" || evicted[0].Pod.Name != "big" {
		t.Errorf("evicted %+v", evicted)
	}
}

// Root has room made for a static pod before it is started, and is told when it is there. With preemption switched off in the gate that is the
// only way. Plain asking stops nobody.
func TestRootPreemptsForAStaticPod(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("preemption: false\nstaticPodPath: " + vm.StaticPods))
	n.agentSays("runtime events connected", 1)
	pods, room := n.crowd()
	const uid = "20000000-0000-4000-8000-000000000001"
	text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: static, namespace: kube-system, uid: %s}\n"+
		"spec: {priority: 2000000000, containers: [{name: c, image: x, resources: {requests: {memory: %d}}}]}\n", uid, room+150*mib)
	if _, err := n.Shell(n.ctx, "mkdir -p "+vm.StaticPods); err != nil {
		t.Fatal(err)
	}
	if err := n.WriteFile(n.ctx, vm.StaticPods+"static.yaml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags string
		code  int
		want  string
	}{
		{"", 3, "kube-system/static is rejected: OutOfmemory: Node didn't have enough resource: memory"},
		{"--preempt", 0, "kube-system/static is admitted"},
		{"", 0, "kube-system/static is admitted"}, // the room is kept
	} {
		if c.flags != "" {
			pods["big"].Fate = vm.Dies
		}
		var res guestapi.ExecResult
		n.until("the manifest is known", func() (err error) {
			res, err = n.Exec(n.ctx, append([]string{"/usr/local/bin/jettison", "admit", "-f", vm.StaticPods + "static.yaml"}, strings.Fields(c.flags)...)...)
			if err == nil && strings.Contains(string(res.Stderr), "neither the runtime nor a static manifest") {
				err = errors.New(string(res.Stderr))
			}
			return err
		})
		if res.Code != c.code || !strings.HasPrefix(string(res.Stdout), c.want) {
			t.Errorf("admit %s: exit code %d, %q, %q; want %d, %q", c.flags, res.Code, res.Stdout, res.Stderr, c.code, c.want)
		}
		for name, p := range pods {
			if err := p.Check(n.ctx); c.code == 3 && err != nil {
				t.Errorf("%s, after plain asking: %v", name, err)
			}
		}
	}
	if alive, err := pods["big"].Populated(n.ctx); alive || err != nil {
		t.Errorf("admitted while the victim lives (%v)", err)
	}
}

// A victim that is stopped in the runtime by its grace period and does not end keeps its room until then: the critical pod is let in when it is
// dead, and not before.
func TestACriticalPodWaitsForTheEndOfItsVictim(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("maxPods: 2"))
	n.agentSays("runtime events connected", 1)
	slow := n.run(n.known(vm.NewPod("slow", "", "", "on-sigterm -after 0 /beat/sigterm + sleep"), 1, 0)) // ends by the kill after its grace period alone
	critical := n.known(vm.NewPod("critical", "", "", "sleep"), 2, 2_000_000_000)
	slow.Fate = vm.Dies
	n.until("the critical pod runs", func() error {
		alive, err := slow.Populated(n.ctx)
		if err != nil {
			return err
		}
		_, err = n.Run(n.ctx, critical)
		if err == nil && alive {
			if alive, _ = slow.Populated(n.ctx); alive {
				t.Error("it runs beside its victim")
			}
		}
		return err
	})
	n.dies(slow)
}
