package admit

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Each port of either side is visited once: comparing each with each takes minutes.
func TestManyPortsAreVisitedOnce(t *testing.T) {
	ports := func(ip string, port int32) []v1.ContainerPort {
		out := make([]v1.ContainerPort, 40_000)
		for i := range out {
			out[i] = v1.ContainerPort{HostPort: port, HostIP: fmt.Sprintf("%s.%d.%d", ip, i/256, i%256)}
		}
		return out
	}
	pod := func(uid types.UID, list []v1.ContainerPort) PodAttributes {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Ports: list}}}}
		p.UID = uid
		return PodAttributes{Pod: p}
	}
	other := HeldBy(pod("other", ports("10.0", 80)))
	for _, c := range []struct {
		list []v1.ContainerPort
		want bool
	}{
		{ports("10.1", 80), false},
		{ports("10.0", 81), false},
		{append(ports("10.1", 80), v1.ContainerPort{HostPort: 80, HostIP: "10.0.155.1"}), true},
		{append(ports("10.1", 80), v1.ContainerPort{HostPort: 80}), true},
		{append(ports("10.1", 80), v1.ContainerPort{HostPort: 80, Protocol: v1.ProtocolUDP}), false},
	} {
		began := cpuTime(t)
		r := Admit(pod("asks", c.list), NodeState{Pods: []Held{other}})
		if r.Admit == c.want || c.want && r.Reason != "NodePorts" {
			t.Errorf("Admit() = %+v, want a port conflict: %v", r, c.want)
		}
		if d := cpuTime(t) - began; d > 20*time.Second {
			t.Errorf("CPU time of a decision = %v, want at most 20s", d)
		}
	}
}

// cpuTime returns the CPU time of this process, which does not depend on the load of the machine.
func cpuTime(t *testing.T) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}
