package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/e2e/guestapi"
	"jettison/e2e/vm"
)

// known returns a pod, with a grace period of two seconds, that a client sends to the agent before
// it starts. number becomes part of its UID.
func (n *node) known(pod *v1.Pod, number int, priority int32) *v1.Pod {
	n.t.Helper()
	grace := int64(2)
	pod.UID = types.UID(fmt.Sprintf("10000000-0000-4000-8000-%012d", number))
	pod.Spec.Priority, pod.Spec.TerminationGracePeriodSeconds = &priority, &grace
	return n.put(pod)
}

// put sends a pod object to the agent.
func (n *node) put(pod *v1.Pod) *v1.Pod {
	n.t.Helper()
	if _, err := n.API().PutPods(n.ctx, []*v1.Pod{pod}); err != nil {
		n.t.Fatal(err)
	}
	return pod
}

var ofMemory = regexp.MustCompile(`memory, requested: \d+, used: (\d+), capacity: (\d+)`)

// room returns the memory in bytes that pods may still request, as the agent reports it.
func (n *node) room() int64 {
	n.t.Helper()
	huge := vm.NewPod("huge", "1Ei", "", "sleep")
	huge.UID = "huge"
	answer, err := n.API().Admit(n.ctx, huge)
	m := ofMemory.FindStringSubmatch(answer.Message)
	if err != nil || m == nil {
		n.t.Fatalf("answer to a huge pod = %+v, error %v, want OutOfmemory", answer, err)
	}
	used, _ := strconv.ParseInt(m[1], 10, 64)
	capacity, _ := strconv.ParseInt(m[2], 10, 64)
	return capacity - used
}

// crowd starts four pods of all classes and returns the memory left for others. The pod big alone
// frees 200Mi.
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
			return fmt.Errorf("pods in the agent's state = %+v", s.Pods)
		}
		return nil
	})
	return pods, n.room()
}

// The gate rejects a critical pod without enough room. The agent preempts exactly the one pod that
// frees enough, and the gate admits the next attempt. It rejects the preempted pod's restart at
// first, and gives the freed room to no other pod meanwhile.
func TestPromiseACriticalPodPreemptsTheFewest(t *testing.T) {
	n := startNode(t)
	n.startAgent(config(""))
	n.agentLogs("runtime events connected", 1)
	pods, room := n.crowd()
	request := fmt.Sprint(room + 150*mib)
	critical := n.known(vm.NewPod("critical", request, "", "sleep"), 10, 2_000_000_000)
	if _, err := n.Run(n.ctx, n.known(vm.NewPod("ordinary", request, "", "sleep"), 11, 1_999_999_999)); err == nil ||
		!strings.Contains(err.Error(), "OutOfmemory: Pod was rejected: Node didn't have enough resource: memory") || strings.Contains(err.Error(), "room is made") {
		t.Fatalf("start of a pod that is not critical = %v, want OutOfmemory without preemption", err)
	}
	_, err := n.Run(n.ctx, critical)
	if err == nil || !strings.Contains(err.Error(), "preemption may free resources for it") {
		t.Fatalf("start of the critical pod = %v, want an error that announces a preemption", err)
	}
	line := n.agentLogs("preemption started", 1)
	if want := "[default/big]"; fmt.Sprint(line.Fields["victims"]) != want {
		t.Errorf("victims of the preemption = %v, want %v", line.Fields["victims"], want)
	}
	n.dies(pods["big"])
	// on an emulated CPU the hold-off of 10 s may be over; its resources are reserved then
	if _, err := n.Run(n.ctx, pods["big"].Object); err == nil || !strings.Contains(err.Error(), "Preempted in order to admit critical pod") &&
		!strings.Contains(err.Error(), "jettison refuses pod default/big: OutOfmemory") {
		t.Errorf("start of the victim directly after its preemption = %v, want a rejection", err)
	}
	n.agentLogs("preemption succeeded", 1)
	if s := n.state(); s.Gate.Preempted != 1 || len(s.Gate.Reserved) != 1 || s.Gate.Reserved[0].Pod.Name != "critical" {
		t.Errorf("gate state after the preemption = %+v", s.Gate)
	}
	if _, err := n.Run(n.ctx, n.known(vm.NewPod("thief", fmt.Sprint(room+1), "", "sleep"), 12, 0)); err == nil || !strings.Contains(err.Error(), "OutOfmemory") {
		t.Errorf("start of another pod in the freed room = %v, want OutOfmemory", err)
	}
	n.run(critical)
	evicted := n.state().Evicted
	if len(evicted) != 1 || evicted[0].Signal != "preempted" || evicted[0].Reason != "Preempting" || evicted[0].Pod.Name != "big" {
		t.Errorf("records of evictions = %+v, want the one preempted pod", evicted)
	}
}

// attemptOf returns a critical pod that a DaemonSet creates in place of its last one, which was
// rejected: with another name and UID.
func (n *node) attemptOf(set string, number int, request int64) *v1.Pod {
	n.t.Helper()
	pod, controller := vm.NewPod(fmt.Sprintf("%s-%05d", set, number), fmt.Sprint(request), "", "sleep"), true
	pod.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "DaemonSet", Name: set, UID: "30000000-0000-4000-8000-000000000001", Controller: &controller},
	}
	return n.known(pod, 100+number, 2_000_000_000)
}

// A node is full of pods of low priority. A DaemonSet replaces its rejected critical pod every
// second by one of another name and UID. All attempts together cost the two victims that the first
// one needs, and the attempt after their deaths runs.
func TestRenamedAttemptsCostNoFurtherVictim(t *testing.T) {
	n := startNode(t)
	n.startAgent(config(""))
	n.agentLogs("runtime events connected", 1)
	const count, orderly = 6, 8 * time.Second
	size := n.room() / count
	var low []*vm.Pod
	for i := range count {
		pod := n.known(vm.NewPod(fmt.Sprint("low-", i), fmt.Sprint(size), "", fmt.Sprintf("on-sigterm -after %v /beat/sigterm + sleep", orderly)), i, 0)
		grace := int64(30)
		pod.Spec.TerminationGracePeriodSeconds = &grace
		p := n.run(n.put(pod))
		p.Expected = vm.Any // the agent chooses the two
		low = append(low, p)
	}
	n.until("the node is full", func() error {
		if room := n.room(); room >= size/2 {
			return fmt.Errorf("room for %d bytes", room)
		}
		return nil
	})

	var run *vm.Pod
	var freed, attempted time.Time
	rejected, limit := 0, time.Now().Add(3*time.Minute)
	for run == nil && time.Now().Before(limit) {
		if freed.IsZero() && n.deadOf(low) >= 2 {
			freed = time.Now()
		}
		attempted = time.Now()
		pod := n.attemptOf("critical", rejected, size+size/2)
		p, err := n.Run(n.ctx, pod)
		if err == nil {
			run = p
			break
		}
		if !strings.Contains(err.Error(), "OutOfmemory") {
			t.Fatalf("start of attempt %d = %v, want OutOfmemory", rejected, err)
		}
		rejected++
		if err := n.API().DeletePod(n.ctx, string(pod.UID)); err != nil { // as the controller does
			t.Fatal(err)
		}
		time.Sleep(time.Until(attempted.Add(time.Second)))
	}
	if run == nil {
		t.Errorf("none of %d attempts runs", rejected)
	} else if late := attempted.Sub(freed); freed.IsZero() || late > 10*time.Second || rejected < 3 {
		t.Errorf("attempt %d began to run %v after the victims' deaths, want at least 3 rejected ones and at most 10 s", rejected, late)
	}
	t.Logf("%d attempts were rejected, the next one began %v after the victims' deaths", rejected, attempted.Sub(freed))
	n.until("nothing stays reserved", func() error {
		if s := n.state(); len(s.Gate.Reserved) > 0 {
			return fmt.Errorf("reserved = %+v", s.Gate.Reserved)
		}
		return nil
	})
	time.Sleep(orderly + 2*time.Second) // a further victim would be dead then
	if dead := n.deadOf(low); dead != 2 {
		t.Errorf("%d pods died for the critical pod, want 2", dead)
	}
	if s := n.state(); s.Gate.Preempted != 1 || len(s.Evicted) != 2 {
		t.Errorf("%d preemptions with records %+v, want one preemption of two pods", s.Gate.Preempted, s.Evicted)
	}
	if room, want := n.room(), 2*size-(size+size/2); room < want {
		t.Errorf("room for %d bytes beside the critical pod, want %d", room, want)
	}
}

// Root preempts pods for a static pod before it starts, and gets the answer when the room is free.
// With preemption disabled in the gate that is the only way. A query without preemption stops no
// pod.
func TestRootPreemptsForAStaticPod(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("preemption: false\nstaticPodPath: " + vm.StaticPods))
	n.agentLogs("runtime events connected", 1)
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
		{"", 0, "kube-system/static is admitted"}, // the room is reserved
	} {
		if c.flags != "" {
			pods["big"].Expected = vm.Dies
		}
		var res guestapi.ExecResult
		n.until("the manifest is known", func() (err error) {
			res, err = n.Exec(n.ctx, append([]string{"/usr/local/bin/jettison", "admit", "--file", vm.StaticPods + "static.yaml"}, strings.Fields(c.flags)...)...)
			if err == nil && strings.Contains(string(res.Stderr), "neither the runtime nor a static manifest") {
				err = errors.New(string(res.Stderr))
			}
			return err
		})
		if res.Code != c.code || !strings.HasPrefix(string(res.Stdout), c.want) {
			t.Errorf("admit %s: exit code %d, stdout %q, stderr %q; want %d, %q", c.flags, res.Code, res.Stdout, res.Stderr, c.code, c.want)
		}
		for name, p := range pods {
			if err := p.Check(n.ctx); c.code == 3 && err != nil {
				t.Errorf("pod %s after a query without preemption: %v", name, err)
			}
		}
	}
	if alive, err := pods["big"].Populated(n.ctx); alive || err != nil {
		t.Errorf("static pod was admitted while the victim lives (%v)", err)
	}
}

// A victim that the runtime stops with its grace period keeps its room until it is dead. Only then
// does the gate admit the critical pod.
func TestACriticalPodWaitsForTheEndOfItsVictim(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("maxPods: 2"))
	n.agentLogs("runtime events connected", 1)
	slow := n.run(n.known(vm.NewPod("slow", "", "", "on-sigterm -after 0 /beat/sigterm + sleep"), 1, 0)) // ends by the kill after its grace period alone
	critical := n.known(vm.NewPod("critical", "", "", "sleep"), 2, 2_000_000_000)
	slow.Expected = vm.Dies
	n.until("the critical pod runs", func() error {
		alive, err := slow.Populated(n.ctx)
		if err != nil {
			return err
		}
		_, err = n.Run(n.ctx, critical)
		if err == nil && alive {
			if alive, _ = slow.Populated(n.ctx); alive {
				t.Error("the critical pod runs while its victim still lives")
			}
		}
		return err
	})
	n.dies(slow)
}
