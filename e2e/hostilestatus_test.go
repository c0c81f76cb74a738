package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// hostileEnv gives a pod so many times 120 KB of "<" in its environment. A runtime's verbose status
// writes each as \u003c, twice: two are above the agent's limit. A kernel accepts at most 128 KiB
// in one variable (MAX_ARG_STRLEN).
func hostileEnv(pod *v1.Pod, times int) *v1.Pod {
	for i := range times {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, v1.EnvVar{Name: fmt.Sprint("E", i), Value: strings.Repeat("<", 120_000)})
	}
	return pod
}

// A pod with a status of 13 MB, and 256 KiB of annotations and labels, neither keeps the agent from
// starting in its 64 MiB nor hides required facts: the agent evicts a leaker with such a status,
// and a pod within its request lives. An emulated node can make one such pod of 13 MB and one of 3
// MB in time; TestTenHostilePodsOf110FitTheAgentsMemory has more.
func TestHostileStatusesFitTheAgentsMemory(t *testing.T) {
	n := startNodeWith(t, vm.Options{MiB: 1536}) // the runtime, too, uses a multiple of such a status
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
			return err // it has no state yet
		}
		if s.Pods.Runtime != 3 || s.Pods.Refused != 1 { // the hostile one, the guaranteed one, the agent's own
			return fmt.Errorf("agent counts pods %+v, want 3 and 1 refused", s.Pods)
		}
		return nil
	})
	said := n.agentLogs("pod status too large, ignored", 1)
	if pod := said.Fields["pod"]; pod != "default/hostile" {
		t.Errorf("agent logged an unread status of pod %v, want the hostile one", pod)
	}
	n.peaksBelow(44 * mib)
	n.fillTo(160 * mib)
	leaker := n.run(hostileEnv(vm.NewPod("leaker", "16Mi", "", "alloc -rate 20Mi -size 4Gi"), 2))
	n.dies(leaker)
	line := n.agentLogs("evicted", 1)
	if got := line.Fields["victim"]; got != "default/leaker" {
		t.Errorf("evicted pod in the agent's log = %v, want the leaker", got)
	}
	n.peaksBelow(44 * mib)
}

// The shipped agent, with its 64 MiB, runs with a runtime that lists 110 pods, ten of them hostile:
// statuses of 15.6 MB and 3 MB, and more than a megabyte each in the lists. The runtime replaces
// them repeatedly, as soon as all were read. The agent reads them all and kills none. The runtime
// is a fake: an emulated node cannot start 110 pods in time. The pods' cgroups are real, with a
// process each.
func TestTenHostilePodsOf110FitTheAgentsMemory(t *testing.T) {
	needsContainerd(t, "the fake runtime serves in a folder that the overlay for containerd mounts")
	const dir = "/run/containerd/hostile"
	n := startNodeWith(t, vm.Options{MiB: 2048}) // the fake uses hundreds of megabytes, too
	read := n.serves(dir, "./internal/agent/podlister", "TestServesAHostileNode")
	var endpoint string
	n.until("the fake runtime serves", func() (err error) { endpoint, err = read("endpoint"); return err })
	n.startAgentWithin(10*time.Minute, config("containerRuntimeEndpoint: %s\nruntimeWait: 10m", endpoint))
	for _, rounds := range []int{1, 2, 4} {
		n.until(fmt.Sprintf("the agent has asked for the ten %d times", rounds), func() error {
			text, err := read("rounds")
			if done, wrong := strconv.Atoi(text); err == nil && (wrong != nil || done < rounds) {
				err = fmt.Errorf("fake runtime finished %q rounds", text)
			}
			return err
		})
	}
	if p := n.state().Pods; p.Runtime < 110 || p.Refused == 0 || p.Refused > 10 { // those of the last round may be unread
		t.Errorf("agent counts pods %+v, want 110 and itself, up to ten of them refused", p)
	}
	n.peaksBelow(48 * mib)
}

// serves runs a test in the guest that acts as a runtime until it is stopped. It reports its
// progress in files of a folder that the agent's pod mounts. read reads one of them. The page cache
// is dropped, so that the kernel charges file pages, including the agent's program, to the agent.
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

// peaksBelow asserts that the agent's own resident memory never exceeded the limit, that its cgroup
// has the shipped limit, and that it killed no process.
func (n *node) peaksBelow(limit int64) {
	n.t.Helper()
	pid := n.mainProcess(n.agent.Pod)
	status := grep(n.shell("cat /proc/"+pid+"/status"), "VmHWM", "VmRSS", "RssAnon")
	events := n.shell("cd /sys/fs/cgroup/" + n.agent.Cgroup + " && cat memory.max && grep -e '^max' -e oom_kill memory.events")
	n.t.Log(status, events, "memory.peak ", n.shell("cat /sys/fs/cgroup/"+n.agent.Cgroup+"/memory.peak"))
	peak, err := strconv.ParseInt(strings.Fields(status)[1], 10, 64)
	if err == nil && peak<<10 > limit {
		err = fmt.Errorf("peak of the agent's memory = %d MiB, want at most %d", peak>>10, limit>>20)
	}
	if err == nil && (!strings.HasPrefix(events, "67108864\n") || !strings.Contains(events, "oom_kill 0")) {
		err = errors.New("the cgroup has another limit, or an OOM kill")
	}
	if err != nil {
		n.t.Error(err)
	}
}
