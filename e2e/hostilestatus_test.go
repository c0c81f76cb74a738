package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// hostileEnv gives a pod so many times 120 KB of "<" in its environment, which a runtime's verbose status writes as \u003c, and twice:
// two are above what the agent takes. A kernel takes no more than 128 KiB in one variable (MAX_ARG_STRLEN).
func hostileEnv(pod *v1.Pod, times int) *v1.Pod {
	for i := range times {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, v1.EnvVar{Name: fmt.Sprint("E", i), Value: strings.Repeat("<", 120_000)})
	}
	return pod
}

// A pod whose status is 13 MB, with 256 KiB of annotations and labels besides, neither keeps the agent from starting in the 64 MiB that it
// has, nor hides what it needs to know: a leaker that hides its status so goes, and who is within its request lives. One such pod of 13 MB
// and one of 3 are what an emulated node makes in time; TestTenHostilePodsOf110FitTheAgentsMemory has the rest.
func TestHostileStatusesFitTheAgentsMemory(t *testing.T) {
	n := startNodeWith(t, vm.Options{MiB: 1536}) // the runtime, too, takes a multiple of such a status
	pod := hostileEnv(vm.NewPod("hostile", "96Mi", "", "sleep"), 9)
	pod.Annotations["tenant/words"] = strings.Repeat("<", 200<<10)
	pod.Labels = map[string]string{}
	for i := range 1000 {
		pod.Labels[fmt.Sprintf("tenant/%d", i)] = strings.Repeat("l", 60)
	}
	n.run(pod)
	n.holding(vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi"), 32*mib)
	n.startAgent(config(""))
	n.until("the agent has asked for all of their statuses", func() error {
		s, err := n.API().State(n.ctx)
		if err != nil {
			return err // it has none yet
		}
		if s.Pods.Runtime != 3 || s.Pods.Refused != 1 { // the hostile one, the guaranteed one, the agent's own
			return fmt.Errorf("it counts %+v", s.Pods)
		}
		return nil
	})
	said := n.agentSays("pod status too large, ignored", 1)
	if pod := said.Fields["pod"]; pod != "default/hostile" {
		t.Errorf("it says so of %v", pod)
	}
	n.peaksBelow(44 * mib)
	n.fillTo(160 * mib)
	leaker := n.run(hostileEnv(vm.NewPod("leaker", "16Mi", "", "alloc -rate 20Mi -size 4Gi"), 2))
	n.dies(leaker)
	line := n.agentSays("evicted", 1)
	if got := line.Fields["victim"]; got != "default/leaker" {
		t.Errorf("the agent says it evicted %v", got)
	}
	n.peaksBelow(44 * mib)
}

// The agent as it is shipped, with its 64 MiB, beside a runtime that tells of 110 pods, ten of them hostile: statuses of 15.6 MB and 3
// MB, and more than a megabyte each in the lists; made anew, over and over, as soon as all were asked for. It reads them all, and none is
// killed. The runtime is a fake, for an emulated node does not start 110 pods in time; the pods' cgroups are real, with a process each.
func TestTenHostilePodsOf110FitTheAgentsMemory(t *testing.T) {
	const dir = "/run/containerd/hostile"
	n := startNodeWith(t, vm.Options{MiB: 2048}) // the fake holds hundreds of megabytes, too
	read := n.serves(dir, "./internal/agent/podlister", "TestServesAHostileNode")
	var endpoint string
	n.until("the fake runtime serves", func() (err error) { endpoint, err = read("endpoint"); return err })
	n.startAgent(config("containerRuntimeEndpoint: %s", endpoint))
	for _, rounds := range []int{1, 2, 4} {
		n.until(fmt.Sprintf("the agent has asked for the ten %d times", rounds), func() error {
			text, err := read("rounds")
			if done, wrong := strconv.Atoi(text); err == nil && (wrong != nil || done < rounds) {
				err = fmt.Errorf("%q rounds", text)
			}
			return err
		})
	}
	if p := n.state().Pods; p.Runtime < 110 || p.Refused == 0 || p.Refused > 10 { // those of the last round may not have been asked for
		t.Errorf("it counts %+v, want 110 pods and itself, up to ten of them refused", p)
	}
	n.peaksBelow(48 * mib)
}

// serves runs a test in the guest that is a runtime until it is told to end, and tells what it does by files in a folder that the agent's pod
// has mounted. read reads one of them. What is in no cache any more is read in on the agent's account: its program, too.
func (n *node) serves(dir, pkg, test string) (read func(name string) (string, error)) {
	n.t.Helper()
	n.shell("mkdir -p " + dir)
	ctx, stop := context.WithCancel(n.ctx)
	served := make(chan error, 1)
	go func() {
		_, err := n.RunTests(ctx, pkg, "-test.run=^"+test+"$", "-test.timeout=20m")
		served <- err
	}()
	n.t.Cleanup(func() { stop(); n.t.Log("the fake runtime ended: ", <-served) })
	if err := n.Import(n.ctx, "/images/jettison.tar"); err != nil {
		n.t.Fatal(err)
	}
	n.shell("sync; echo 3 > /proc/sys/vm/drop_caches")
	return func(name string) (string, error) {
		select {
		case err := <-served:
			served <- err
			n.t.Fatal("the fake runtime ended: ", err)
		default:
		}
		text, err := n.ReadFile(n.ctx, dir+"/"+name, 0)
		return string(text), err
	}
}

// peaksBelow asserts that the agent never had more memory of its own resident, that its cgroup's limit is the shipped one, and that it
// killed nothing.
func (n *node) peaksBelow(limit int64) {
	n.t.Helper()
	pid := n.mainProcess(n.agent.Pod)
	status := grep(n.shell("cat /proc/"+pid+"/status"), "VmHWM", "VmRSS", "RssAnon")
	events := n.shell("cd /sys/fs/cgroup/" + n.agent.Cgroup + " && cat memory.max && grep -e '^max' -e oom_kill memory.events")
	n.t.Log(status, events, "memory.peak ", n.shell("cat /sys/fs/cgroup/"+n.agent.Cgroup+"/memory.peak"))
	peak, err := strconv.ParseInt(strings.Fields(status)[1], 10, 64)
	if err == nil && peak<<10 > limit {
		err = fmt.Errorf("a peak of %d MiB, want at most %d", peak>>10, limit>>20)
	}
	if err == nil && (!strings.HasPrefix(events, "67108864\n") || !strings.Contains(events, "oom_kill 0")) {
		err = errors.New("another limit, or it has killed")
	}
	if err != nil {
		n.t.Error(err)
	}
}
