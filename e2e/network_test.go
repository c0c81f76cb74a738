package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// withOwnNetwork gives a pod its own network namespace, with an eth0.
func withOwnNetwork(pod *v1.Pod) *v1.Pod {
	pod.Spec.HostNetwork = false
	return pod
}

// traffic returns the byte counters of a pod's eth0.
func (n *node) traffic(p *vm.Pod) (received, sent int64) {
	n.t.Helper()
	line := n.shell("grep eth0: /proc/" + n.mainProcess(p) + "/net/dev")
	fields := strings.Fields(strings.Replace(line, ":", " ", 1))
	for i, to := range map[int]*int64{1: &received, 9: &sent} { // linux net/core/net-procfs.c
		var err error
		if *to, err = strconv.ParseInt(fields[i], 10, 64); err != nil {
			n.t.Fatalf("parse counters of eth0 in %q: %v", line, err)
		}
	}
	return received, sent
}

// Pods without the host's network have their own eth0 and reach each other. Their eth0 counts the
// bytes.
func TestPodsHaveNetworksOfTheirOwn(t *testing.T) {
	n := startNode(t)
	if err := n.NetworkReady(n.ctx); err != nil {
		t.Fatal(err)
	}
	listener := n.run(withOwnNetwork(vm.NewPod("listener", "", "", "net -listen :9000")))
	address, err := listener.IP(n.ctx)
	if err != nil {
		t.Fatal(err)
	}
	sender := n.run(withOwnNetwork(vm.NewPod("sender", "", "", "net -send 4Mi -to "+address+":9000")))
	n.until("4 MiB have gone from one pod to the other", func() error {
		received, _ := n.traffic(listener)
		_, sent := n.traffic(sender)
		if received < 4*mib || sent < 4*mib {
			return fmt.Errorf("eth0 counted %d bytes received, %d sent", received, sent)
		}
		return nil
	})
	if received, _ := n.traffic(sender); received > mib {
		t.Errorf("the sender received %d bytes, want few", received)
	}
	if host := n.shell("cat /proc/net/dev"); strings.Count(host, "veth") != 2 {
		t.Errorf("want the host's ends of 2 pairs of devices:\n%s", host)
	}
	if err := sender.Remove(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.until("the sender's network is gone", func() error {
		if host := n.shell("cat /proc/net/dev"); strings.Count(host, "veth") != 1 {
			return fmt.Errorf("host still has devices of pods: %s", host)
		}
		return nil
	})
}
