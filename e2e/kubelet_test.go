package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"jettison/e2e/vm"
)

// startKubeletNode boots a node with a standalone kubelet. TestKubelet* are not part of `make e2e`:
// building the kubelet takes minutes.
func startKubeletNode(t *testing.T, o vm.KubeletOptions) *node {
	t.Helper()
	if os.Getenv("JETTISON_KUBELET") == "" {
		t.Skip("needs a kubelet: run make e2e-kubelet")
	}
	n := startNodeWith(t, vm.Options{Kubelet: true, MiB: 1536})
	if err := n.StartKubelet(n.ctx, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("kubelet's log:\n" + n.KubeletLog(40))
		}
	})
	return n
}

// runStatic has the kubelet run a static pod.
func (n *node) runStatic(pod *v1.Pod) *vm.Pod {
	n.t.Helper()
	p, err := n.RunStatic(n.ctx, pod)
	if err != nil {
		n.t.Fatal(err)
	}
	return p
}

// kubeletSummary returns the kubelet's current summary.
func (n *node) kubeletSummary() *statsapi.Summary {
	n.t.Helper()
	text, err := n.KubeletSummary(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	return n.summary(text)
}

// agentSummary returns the current summary of the agent's command line, run in the agent's
// container.
func (n *node) agentSummary() *statsapi.Summary {
	n.t.Helper()
	text, err := n.agent.Exec(n.ctx, "/jettison", "stats", "-o", "json")
	if err != nil {
		n.t.Fatal(err)
	}
	return n.summary(text)
}

func (n *node) summary(text []byte) *statsapi.Summary {
	n.t.Helper()
	var s statsapi.Summary
	if err := json.Unmarshal(text, &s); err != nil {
		n.t.Fatalf("decode the kubelet answer: %v in %s", err, text)
	}
	return &s
}

// idlePods starts four pods that allocate their resources and then do nothing: one of each QoS
// class, and one with its own network, the first, to which a mebibyte is sent.
func (n *node) idlePods() (names []string) {
	n.t.Helper()
	disk := v1.EmptyDirVolumeSource{}
	networked := withEmptyDir(withOwnNetwork(vm.NewPod("networked", "16Mi", "", "net -listen :9000 + fill -size 1Mi /disk/file")), "disk", disk)
	listener := n.runStatic(networked)
	address, err := listener.IP(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.Start(n.ctx, "/var/log/send.log", "/usr/local/bin/workload", "net", "-send", "1Mi", "-to", address+":9000"); err != nil {
		n.t.Fatal(err)
	}
	for _, pod := range []*vm.Pod{
		listener,
		n.runStatic(vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi")),
		n.runStatic(withEmptyDir(vm.NewPod("burstable", "64Mi", "", "alloc -size 24Mi + fill -size 8Mi /disk/file"), "disk", disk)),
		n.runStatic(vm.NewPod("besteffort", "", "", "alloc -size 8Mi")),
	} {
		names = append(names, pod.Object.Name)
	}
	return names
}

// The kubelet and the agent measure the same node and report the same figures.
func TestKubeletAndAgentAgree(t *testing.T) {
	n := startKubeletNode(t, vm.KubeletOptions{})
	names := n.idlePods()
	n.startAgent(config("staticPodPath: " + vm.StaticPods))
	if line := n.agentLogs("started", 1); line.Fields["kubelet"] != true || line.Fields["disk"] != "observe" {
		t.Errorf("agent with a kubelet still handles the disks: %v", line.Fields)
	}
	n.until("the agent knows the objects of the static pods", func() error {
		if got := n.state().Pods.Objects; got != len(names)+1 { // the agent is a pod, too
			return fmt.Errorf("agent has %d objects of %d pods", got, len(names)+1)
		}
		return nil
	})
	// The kubelet's figures of pods are up to 20 s old, those of volumes a minute. The test repeats
	// until both have settled, slowly enough that each reading has newer kubelet figures.
	var rows []row
	for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(25 * time.Second) {
		before := n.agentSummary()
		kubelet := n.kubeletSummary()
		after := n.agentSummary()
		rows = compare(before, comparable(kubelet, n.agent.Object.Name, names[0]), after)
		missing := missingPods(rows, names)
		settled := len(missing) == 0 && !slices.ContainsFunc(rows, func(r row) bool { return !r.ok })
		if settled {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("figures of kubelet and agent differ; kubelet has no figures of %v", missing)
			break
		}
	}
	var table strings.Builder
	if err := printRows(&table, rows); err != nil {
		t.Fatal(err)
	}
	t.Logf("figures of the kubelet and the agent:\n%s", &table)
}

// missingPods returns the pods without memory figures from the kubelet, which cannot be compared.
func missingPods(rows []row, names []string) (missing []string) {
	for _, name := range names {
		if !slices.ContainsFunc(rows, func(r row) bool {
			return r.object == "default/"+name && r.signal == "memory.workingSetBytes"
		}) {
			missing = append(missing, name)
		}
	}
	return missing
}
