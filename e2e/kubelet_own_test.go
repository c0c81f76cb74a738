package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"jettison/e2e/vm"
)

// untilLimit works as until with a limit other than two minutes.
func (n *node) untilLimit(limit time.Duration, what string, check func() error) {
	n.t.Helper()
	if err := n.Eventually(n.ctx, limit, what, func(context.Context) error { return check() }); err != nil {
		n.t.Fatal(err)
	}
}

// The DaemonSet, unmodified and without a configuration, uses the kubelet's own: its file, a
// drop-in, a flag. It logs the source.
func TestKubeletsOwnConfiguration(t *testing.T) {
	n := startKubeletNode(t, vm.KubeletOptions{
		Config: "evictionHard: {memory.available: 300Mi, nodefs.available: 7%}\n", Args: []string{"--image-gc-high-threshold=93"},
	})
	n.startAgent("")
	line := n.agentLogs("started", 1)
	thresholds, from := fmt.Sprint(line.Fields["thresholds"]), fmt.Sprint(line.Fields["config"])
	for _, want := range []string{"memory.available<300Mi", "nodefs.available<7%"} {
		if !strings.Contains(thresholds, want) {
			t.Errorf("thresholds from the kubelet's configuration = %s, want %s", thresholds, want)
		}
	}
	want := fmt.Sprintf("the kubelet, process %d: /etc/kubernetes/kubelet.yaml, --image-gc-high-threshold", n.KubeletPID())
	if from != want || line.Fields["kubelet"] != true || line.Fields["disk"] != "observe" {
		t.Errorf("logged sources = %v, want %q", line.Fields, want)
	}
}

// A kubelet that restarts every 20 s for 10 minutes, and is down for 14 s each time, counts as
// running all the time. With gc and disk unset the agent does not collect leftovers of removed
// pods, and never logs that there is no kubelet.
func TestKubeletRestartsAllTheTime(t *testing.T) {
	n := startKubeletNode(t, vm.KubeletOptions{})
	n.shell("mkdir -p /var/log/pods/default_ghost_0fa5bd1e-40dd-4c6a-a5ac-cbb7e0d3ad1c/main && " +
		"echo x > /var/log/pods/default_ghost_0fa5bd1e-40dd-4c6a-a5ac-cbb7e0d3ad1c/main/0.log")
	n.startAgent(config("podGoneAfter: 0s"))
	if err := n.RestartKubelet(n.ctx, 20*time.Second, 14*time.Second, time.Duration(trials(10))*time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, l := range n.agentLog() {
		if l.Msg == "kubelet presence changed" && l.Fields["present"] == false || l.Msg == "garbage collected" || l.Msg == "rotated logs" {
			t.Errorf("agent logged unexpected line %s %v", l.Msg, l.Fields)
		}
	}
	if line := n.agentLogs("started", 1); line.Fields["kubelet"] != true {
		t.Errorf("unexpected state of the agent's log: %v", line.Fields)
	}
}
