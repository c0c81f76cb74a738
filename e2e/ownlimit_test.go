package e2e

import (
	"fmt"
	"strings"
	"testing"

	"jettison/e2e/vm"
)

// A pod that thrashes at its own memory limit raises the node's pressure, here beyond a threshold.
// The agent names the pod and may evict it, as it is over its request, but evicts no other pod.
func TestPromiseAPodAtItsOwnLimitCostsNobodyElse(t *testing.T) {
	n := startNode(t)
	n.startAgent(config(`evictionHard: {memory.available: 100Mi, memory.pressure.some: "5%%/1s"}`))
	n.holding(vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi"), 32*mib)
	n.holding(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"), 32*mib)
	n.holding(vm.NewPod("besteffort", "", "", "alloc -size 48Mi"), 48*mib) // ranked first for memory.available
	thrasher := n.run(vm.NewPod("thrasher", "1Mi", "48Mi", "thrash -size 150Mi /file"))
	thrasher.Expected = vm.Dies
	n.agentLogs("pod at its own memory limit", 1)
	n.dies(thrasher)
	line := n.agentLogs("evicted", 1)
	if line.Fields["victim"] != "default/thrasher" || line.Fields["signal"] != "memory.pressure.some" {
		n.t.Errorf("agent evicted %v for %v, want only the thrashing pod", line.Fields["victim"], line.Fields["signal"])
	}
	for _, l := range n.agentLog() {
		if text := fmt.Sprint(l.Fields["pod"]); strings.HasPrefix(l.Msg, "pod at its own memory limit") && text != "default/thrasher" {
			n.t.Errorf("named as being at its limit: %s", text)
		}
	}
}
