package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"jettison/e2e/vm"
)

// withOwnNetwork gives a pod a network namespace of its own, with an eth0.
func withOwnNetwork(pod *v1.Pod) *v1.Pod {
	pod.Spec.HostNetwork = false
	return pod
}

// traffic is what a pod's eth0 has counted, in bytes.
func (n *node) traffic(p *vm.Pod) (received, sent int64) {
	n.t.Helper()
	line := n.shell("grep eth0: /proc/" + n.mainProcess(p) + "/net/dev")
	fields := strings.Fields(strings.Replace(line, ":", " ", 1))
	for i, to := range map[int]*int64{1: &received, 9: &sent} { // linux net/core/net-procfs.c
		var err error
		if *to, err = strconv.ParseInt(fields[i], 10, 64); err != nil {
			n.t.Fatalf("%q: %v", line, err)
		}
	}
	return received, sent
}

// Pods without the host's network have an eth0 of their own and reach one another; what they send is counted there.
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
			return fmt.Errorf("%d bytes received, %d sent", received, sent)
		}
		return nil
	})
	if received, _ := n.traffic(sender); received > mib {
		t.Errorf("the sender has received %d bytes", received)
	}
	if host := n.shell("cat /proc/net/dev"); strings.Count(host, "veth") != 2 {
		t.Errorf("want the host's ends of 2 pairs of devices:\n%s", host)
	}
	if err := sender.Remove(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.until("the sender's network is gone", func() error {
		if host := n.shell("cat /proc/net/dev"); strings.Count(host, "veth") != 1 {
			return fmt.Errorf("%s", host)
		}
		return nil
	})
}
