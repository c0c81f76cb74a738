package e2e

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// idlePodCount is a kubelet's default maxPods.
const idlePodCount = 110

// startIdleNode boots a node on which a kubelet runs idle pods, and the agent with it.
func startIdleNode(b *testing.B) *node {
	if _, ok := os.LookupEnv(trialsVariable); !ok {
		b.Skip("takes long: run make bench-react")
	}
	n := startNodeWith(b, vm.Options{Kubelet: true, MiB: 6144})
	if err := n.StartKubelet(n.ctx, vm.KubeletOptions{Config: "maxPods: 200\n"}); err != nil { // the agent is a pod, too
		b.Fatal(err)
	}
	var objects []*v1.Pod
	for i := range idlePodCount {
		pod := vm.NewPod("pod"+strconv.Itoa(i), "16Mi", "", "")
		// Not the workload: its heartbeat would dominate the measurement.
		pod.Spec.Containers = []v1.Container{{Name: "main", Image: vm.ImagePause, Resources: pod.Spec.Containers[0].Resources}}
		// One filter less to compile per pod: only that of its sandbox stays.
		pod.Spec.SecurityContext = &v1.PodSecurityContext{SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined}}
		objects = append(objects, pod)
	}
	if _, err := n.RunManyStatic(n.ctx, objects); err != nil {
		b.Fatal(err)
	}
	n.startAgent("")
	return n
}

// BenchmarkIdle prints the agent's cost on a node with 110 idle pods: first alongside a kubelet, in
// the same minutes, then alone, after the kubelet was killed. The first measurement takes five
// minutes, or COUNT minutes, the second at most two: starting the pods already takes longer.
func BenchmarkIdle(b *testing.B) {
	began := time.Now()
	say := func(what string) { fmt.Printf("%6.1f s  %s\n", time.Since(began).Seconds(), what) }
	n := startIdleNode(b)
	say("all pods run, and the agent")
	agent, containerd := n.pid(n.mainProcess(n.agent.Pod)), n.pid(n.shell("echo "+n.RuntimePID()))
	beside := time.Duration(trials(5)) * time.Minute
	alone := min(beside, 2*time.Minute)
	t := newTable(fmt.Sprintf("idle for %v and %v, %d pods, kernel %s", beside, alone, idlePodCount, n.Kernel),
		"process", "CPU % of an emulated core", "RssAnon MB", "VmRSS MB", "threads", "switches a second", "system calls a second")
	t.began = began
	time.Sleep(settle)
	first := n.observe(beside, map[string]int{"agent": agent, "kubelet": n.KubeletPID(), "containerd": containerd})
	addCost(t, "agent beside the kubelet", first["agent"])
	addCost(t, "kubelet", first["kubelet"])
	addCost(t, "containerd", first["containerd"])
	t.note("the agent's CPU is 1/%.1f of the kubelet's in the same minutes (wanted: 1/20 at most)", first["kubelet"].cpu/first["agent"].cpu)
	say("seen beside a kubelet")
	t.print() // the rest takes a quarter of an hour
	if err := n.StopKubelet(n.ctx); err != nil {
		b.Fatal(err)
	}
	n.untilLimit(15*time.Minute, "the agent has found out that no kubelet runs", func() error { // it waits 10 minutes for a restarting kubelet
		for _, l := range n.agentLog() {
			if l.Msg == "kubelet presence changed" && l.Fields["present"] == false {
				return nil
			}
		}
		return errors.New("not in its log")
	})
	time.Sleep(settle)
	second := n.observe(alone, map[string]int{"agent": agent, "containerd": containerd})
	addCost(t, "agent alone", second["agent"])
	addCost(t, "containerd without a kubelet", second["containerd"])
	t.note("switches: of all threads, voluntary and not; system calls: counted by the tracepoint raw_syscalls:sys_enter in %v of their own", syscallWindow)
	t.print()
	reportOnce(b)
}

// settle is how long a node is left alone before a measurement.
const settle = 20 * time.Second

// syscallWindow is how long system calls are counted, after all other measurements: counting makes
// each call slower.
const syscallWindow = 20 * time.Second

// cost has the resources that a process used during a measurement.
type cost struct {
	cpu                float64 // share of a core
	anon, rss          int64   // bytes, at the end
	threads            int
	switches, syscalls float64 // a second
}

// observe reads the usage of processes before and after a window without any other work in the
// guest.
func (n *node) observe(window time.Duration, pids map[string]int) map[string]cost {
	n.t.Helper()
	usages := func() (map[string]vm.Usage, int64) {
		out := map[string]vm.Usage{}
		for name, pid := range pids {
			u, err := n.Usage(n.ctx, pid)
			if err != nil {
				n.t.Fatal(err)
			}
			out[name] = u
		}
		return out, n.monotonic()
	}
	before, from := usages()
	time.Sleep(window) // this is what is measured
	after, to := usages()
	calls, err := n.Syscalls(n.ctx, syscallWindow)
	if err != nil {
		n.t.Fatal(err)
	}
	out := map[string]cost{}
	seconds := elapsed(from, to).Seconds()
	for name, u := range after {
		c := cost{
			cpu: (u.CPU - before[name].CPU).Seconds() / seconds, anon: u.RSSAnon, rss: u.RSS, threads: len(u.Switches),
			switches: float64(u.SwitchesSince(before[name])) / seconds,
		}
		var sum int64
		for thread := range u.Switches {
			sum += calls[thread]
		}
		c.syscalls = float64(sum) / syscallWindow.Seconds()
		out[name] = c
	}
	return out
}

// addCost adds a row.
func addCost(t *table, name string, c cost) {
	t.row(name, fmt.Sprintf("%.2f", 100*c.cpu), decimal(float64(c.anon)/1e6), decimal(float64(c.rss)/1e6), c.threads, decimal(c.switches), decimal(c.syscalls))
}

// pid is a process id as the guest prints it.
func (n *node) pid(text string) int {
	n.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		n.t.Fatal(err)
	}
	return pid
}
