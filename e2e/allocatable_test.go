package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"jettison/e2e/vm"
)

// limited maps a file below /sys/fs/cgroup to the value that the agent writes to it. Alternatives
// are separated by a bar.
type limited map[string]string

// limitsOf returns the values for two pods on a node that reserves so many bytes of memory and 100
// tasks.
func (n *node) limitsOf(guaranteed, burstable *vm.Pod, reserved int64) limited {
	n.t.Helper()
	m, err := n.Memory(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	most := n.number("cat /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max | sort -n | head -n 1")
	root := strings.Split(guaranteed.Cgroup, "/")[0]
	container := func(p *vm.Pod) string { return p.ContainerCgroup(p.Containers[0]) }
	return limited{
		root + "/memory.max": strconv.FormatInt(m.Total-reserved, 10),
		root + "/pids.max":   strconv.FormatUint(most-100, 10),
		root + "/memory.min": fmt.Sprint(64*mib, "|", (64+48)*mib), // with the agent's own, unless it may have started with a kubelet running
		root + "/memory.low": "41943040",

		guaranteed.Cgroup + "/memory.min":     "67108864",
		container(guaranteed) + "/memory.min": "67108864",
		burstable.Cgroup + "/memory.low":      "41943040",
		container(burstable) + "/memory.low":  "41943040",
		container(burstable) + "/memory.high": "98566144", // 40Mi + 0.9 × (100Mi - 40Mi)
	}
}

// has waits until cgroup files have the wanted values.
func (n *node) has(what string, want limited) {
	n.t.Helper()
	n.until(what, func() error {
		for file, text := range want {
			got, err := n.ReadFile(n.ctx, "/sys/fs/cgroup/"+file, 0)
			if err != nil {
				return err
			}
			if !slices.Contains(strings.Split(text, "|"), strings.TrimSpace(string(got))) {
				return fmt.Errorf("cgroup file %s = %s, want %s", file, got, text)
			}
		}
		return nil
	})
}

// Without a kubelet the agent limits all pods to the allocatable resources and protects their
// requests, if the configuration enables both. A limit below the pods' usage kills none. An agent
// that ends removes the protection. An agent with limits disabled removes the limits, also after a
// crash.
func TestPodsAreLimitedAndProtected(t *testing.T) { limitsPods(startNode(t), "") }

// The same with systemd, which rewrites its slices' values when it reloads its units.
func TestPodsAreLimitedAndProtectedBySystemd(t *testing.T) {
	limitsPods(startNodeWith(t, vm.Options{Systemd: true}), "systemctl daemon-reload")
}

func limitsPods(n *node, disturb string) {
	const wanted = "writeAllocatable: true\nmemoryQoS: true\nmemoryThrottlingFactor: 0.9\nkubeReserved: {memory: %d, pid: \"100\"}"
	n.startAgent(config(wanted, 100*mib))
	guaranteed := n.run(n.known(vm.NewPod("guaranteed", "64Mi", "64Mi", "sleep"), 1, 0))
	burstable := n.run(n.known(vm.NewPod("burstable", "40Mi", "100Mi", "alloc -size 30Mi"), 2, 0))
	want := n.limitsOf(guaranteed, burstable, 100*mib)
	n.has("pods are limited and protected", want)
	if disturb != "" {
		n.shell(disturb)
		n.has("they are after it: "+disturb, want)
	}

	// A crash, and then a limit below the pods' usage.
	n.holding(vm.NewPod("user", "", "", "alloc -size 250Mi"), 250*mib)
	n.shell("kill -9 " + n.mainProcess(n.agent.Pod))
	if err := n.agent.Remove(n.ctx); err != nil {
		n.t.Fatal(err)
	}
	m, err := n.Memory(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	n.startAgent(config(wanted, m.Total-150*mib))
	n.agentLogs("restored pod cgroup settings", 1)
	n.until("they are limited to not much more than they use", func() error {
		root := strings.Split(guaranteed.Cgroup, "/")[0]
		most, used := n.number("cat /sys/fs/cgroup/"+root+"/memory.max"), n.number("cat /sys/fs/cgroup/"+root+"/memory.current")
		if most <= used || most > used+used/16+256*mib {
			return fmt.Errorf("memory.max = %d with %d bytes used, want the lower limit", most, used)
		}
		return nil
	})

	// The agent ends, and an agent starts that does not write limits.
	n.shell("kill -TERM " + n.mainProcess(n.agent.Pod))
	n.agentLogs("stopped", 1)
	if err := n.agent.Remove(n.ctx); err != nil {
		n.t.Fatal(err)
	}
	free, root := limited{}, strings.Split(guaranteed.Cgroup, "/")[0]
	for file := range want {
		free[file] = map[bool]string{true: "0", false: "max"}[strings.HasSuffix(file, ".min") || strings.HasSuffix(file, ".low")]
	}
	stays := limited{root + "/pids.max": want[root+"/pids.max"]}
	n.has("the limit of tasks stays, as with a kubelet", stays)
	delete(free, root+"/pids.max")
	delete(free, root+"/memory.max")
	n.has("protection is taken back", free)
	n.startAgent(config(""))
	n.has("the limits are, too", limited{root + "/pids.max": "max", root + "/memory.max": "max", root + "/cpu.weight": "100"})
}
