// Package e2e has the scenarios: the agent's promises, checked on a real node. Each asserts with
// the guest's own evidence.
//
// TestPromise* run in `make test` on kernel 6.12, TestSmoke* on 6.1. `make e2e` runs everything on
// one kernel, selected by JETTISON_KERNEL.
package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/guestapi"
	"jettison/e2e/vm"
)

// mib is a mebibyte.
const mib = 1 << 20

// defaultThreshold is the kubelet's: memory.available<100Mi.
const defaultThreshold = 100 * mib

// node is a running node under test, with helpers for scenarios.
type node struct {
	*vm.Node
	t        testing.TB
	ctx      context.Context
	agent    *vm.Agent
	overlay  string // overlay of deploy that the agent runs with
	oomMeant bool
}

// startNode boots a node for one test. At the test's end it audits the node (every pod not expected
// to die lives, no unexpected OOM kill), logs the node's logs if the test failed, and shuts the
// node down.
func startNode(t testing.TB) *node {
	t.Helper()
	return startNodeWith(t, vm.Options{})
}

// startNodeWith works as startNode on a machine with other options.
func startNodeWith(t testing.TB, o vm.Options) *node {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a virtual machine: run make e2e")
	}
	if test, ok := t.(*testing.T); ok {
		test.Parallel() // two at a time: go test -parallel 2
	}
	ctx := t.Context()
	began := time.Now()
	o.Kernel, o.CRIO = os.Getenv("JETTISON_KERNEL"), crioFolder(t)
	o.Say = func(format string, args ...any) {
		t.Logf("%6.1f s  "+format, append([]any{time.Since(began).Seconds()}, args...)...)
	}
	machine, err := vm.Boot(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Node: machine, t: t, ctx: ctx, overlay: machine.Overlay()}
	if strings.HasPrefix(t.Name(), "TestLeastPrivilege") {
		n.overlay = vm.OverlayLeastPrivilege
	}
	t.Cleanup(func() {
		defer machine.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // the test's own context has ended
		defer cancel()
		for _, fault := range machine.Audit(ctx, n.oomMeant) {
			t.Error("audit of the node failed: ", fault)
		}
		if t.Failed() {
			n.showLogs()
		}
	})
	return n
}

// crioFolder returns the folder with CRI-O's programs if the tests run with CRI-O, else "".
func crioFolder(t testing.TB) string {
	t.Helper()
	switch name := os.Getenv("JETTISON_RUNTIME"); name {
	case "", "containerd":
		return ""
	case "crio":
		folder := os.Getenv("JETTISON_CRIO")
		if folder == "" {
			t.Fatal("CRIO is empty: run make e2e RUNTIME=crio CRIO=FOLDER, a folder with crio, conmon and pinns")
		}
		return folder
	default:
		t.Fatalf("RUNTIME = %q, want containerd or crio", name)
		return ""
	}
}

// needsContainerd skips a test on another runtime.
func needsContainerd(t testing.TB, why string) {
	t.Helper()
	if crioFolder(t) != "" {
		t.Skip("not with CRI-O: " + why)
	}
}

func (n *node) showLogs() {
	if n.agent != nil {
		n.t.Log("agent's log:\n" + n.Tail(n.agent.LogPath("agent"), 40))
	}
	n.t.Log("the runtime's log:\n" + n.Tail(n.Runtime.Log(), 60))
	n.t.Log("serial console:\n" + n.Console())
}

// startAgent runs the agent as its DaemonSet would and waits until it watches.
func (n *node) startAgent(config string, args ...string) {
	n.t.Helper()
	n.startAgentWithin(2*time.Minute, config, args...)
}

// startAgentWithin works as startAgent with another time limit.
func (n *node) startAgentWithin(limit time.Duration, config string, args ...string) {
	n.t.Helper()
	var err error
	if n.agent, err = n.StartAgentAs(n.ctx, n.overlay, config, args...); err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.agent.WaitLog(n.ctx, limit, "started", 1); err != nil {
		n.t.Fatal(err)
	}
}

// agentLogs waits for the count-th line of the agent's log with a message.
func (n *node) agentLogs(msg string, count int) vm.LogLine {
	n.t.Helper()
	line, err := n.agent.WaitLog(n.ctx, 2*time.Minute, msg, count)
	if err != nil {
		n.t.Fatal(err)
	}
	return line
}

// run starts a pod.
func (n *node) run(pod *v1.Pod) *vm.Pod {
	n.t.Helper()
	p, err := n.Run(n.ctx, pod)
	if err != nil {
		n.t.Fatal(err)
	}
	return p
}

// holding starts a pod that allocates exactly so much, and waits until it has.
func (n *node) holding(pod *v1.Pod, size int64) *vm.Pod {
	n.t.Helper()
	p := n.run(pod)
	n.until(pod.Name+" holds its memory", func() error { return n.holds(p.Main(), size) })
	return p
}

// holds returns nil if a cgroup has so much memory.
func (n *node) holds(cgroup string, size int64) error {
	current, err := n.ReadFile(n.ctx, "/sys/fs/cgroup/"+cgroup+"/memory.current", 0)
	if err != nil {
		return err
	}
	if held, err := strconv.ParseInt(strings.TrimSpace(string(current)), 10, 64); err != nil || held < size {
		return fmt.Errorf("memory.current = %d, %v", held, err)
	}
	return nil
}

// fillTo starts a pod that allocates memory until about headroom is left above the threshold, and
// waits for that.
func (n *node) fillTo(headroom int64) *vm.Pod {
	n.t.Helper()
	m, err := n.Memory(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	size := (m.Available() - defaultThreshold - headroom) / mib
	if size < 16 {
		n.t.Fatalf("only %d MiB available: not enough to fill", m.Available()/mib)
	}
	// It requests more than it uses, so every other pod of the scenario ranks before it.
	request := fmt.Sprintf("%dMi", size+64)
	return n.holding(vm.NewPod("ballast", request, request, fmt.Sprintf("alloc -size %dMi", size)), size*mib)
}

// until waits until check returns nil.
func (n *node) until(what string, check func() error) {
	n.t.Helper()
	if err := n.Eventually(n.ctx, 2*time.Minute, what, func(context.Context) error { return check() }); err != nil {
		n.t.Fatal(err)
	}
}

// dies waits until a pod is dead for the kernel and the runtime, and makes the audit expect it.
func (n *node) dies(p *vm.Pod) {
	n.t.Helper()
	p.Expected = vm.Dies
	if err := p.WaitDead(n.ctx); err != nil {
		n.t.Fatal(err)
	}
}

// expectMemoryAvailable asserts that more than the threshold is available.
func (n *node) expectMemoryAvailable() {
	n.t.Helper()
	m, err := n.Memory(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	if m.Available() < defaultThreshold {
		n.t.Fatalf("%d MiB available after the eviction, want more than %d", m.Available()/mib, defaultThreshold/mib)
	}
}

// watch starts the guest's sampler on a pod that is expected to be evicted. The result stops it and
// returns its samples. More than a hundred samples a second would use so much of an emulated CPU
// that the agent and the kernel wait for the sampler.
func (n *node) watch(p *vm.Pod) func() guestapi.Sample {
	n.t.Helper()
	return n.watchBelow(p, defaultThreshold)
}

// watchBelow works as watch with another threshold.
func (n *node) watchBelow(p *vm.Pod, threshold int64) func() guestapi.Sample {
	n.t.Helper()
	stop, err := n.Sample(n.ctx, guestapi.SampleRequest{Every: 10 * time.Millisecond, Threshold: threshold, Cgroup: p.Main()})
	if err != nil {
		n.t.Fatal(err)
	}
	return func() guestapi.Sample {
		n.t.Helper()
		s, err := stop()
		if err != nil {
			n.t.Fatal(err)
		}
		return s
	}
}

// shell runs a line of shell in the guest.
func (n *node) shell(line string) string {
	n.t.Helper()
	out, err := n.Shell(n.ctx, line)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// reads returns nil if a file of the guest has a text.
func (n *node) reads(path, text string) error {
	content, err := n.ReadFile(n.ctx, path, 0)
	if err == nil && !strings.Contains(string(content), text) {
		err = fmt.Errorf("%s contains %q", path, content)
	}
	return err
}

// agentLog returns the agent's log so far.
func (n *node) agentLog() []vm.LogLine {
	n.t.Helper()
	lines, err := n.agent.Log(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	return lines
}

// mainProcess returns the guest's id of the first process of a pod's first container.
func (n *node) mainProcess(p *vm.Pod) string {
	n.t.Helper()
	return strings.Fields(n.shell("cat /sys/fs/cgroup/" + p.ContainerCgroup(p.Containers[0]) + "/cgroup.procs"))[0]
}
