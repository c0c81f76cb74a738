package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"jettison/e2e/vm"
)

// The agent as it is shipped, with its 64 MiB, beside a runtime that tells of 10,000 finished pods: it starts, lists them over and over and
// removes their containers one by one, each looked at again before, and is not killed for it. The runtime is a fake, for an emulated node
// does not start 10,000 containers in time; a list of all of them takes it seconds.
func TestTenThousandDeadContainersFitTheAgentsMemory(t *testing.T) {
	const dir, enough = "/run/containerd/dead", 100
	n := startNodeWith(t, vm.Options{MiB: 2048}) // the fake holds hundreds of megabytes, too
	read := n.serves(dir, "./internal/node/garbage", "TestServesDeadContainers")
	var endpoint string
	n.until("the fake runtime serves", func() (err error) { endpoint, err = read("endpoint"); return err })
	n.startAgent(config("containerRuntimeEndpoint: %s\npodGoneAfter: 5s\ncontainerGCPeriod: 5s", endpoint))
	before := n.mainProcess(n.agent.Pod)
	err := n.Eventually(n.ctx, 8*time.Minute, "the agent has removed containers", func(context.Context) error {
		text, err := read("removed")
		removed := 0
		if _, wrong := fmt.Sscan(text, &removed); err == nil && (wrong != nil || removed < enough) {
			err = fmt.Errorf("%q are removed", text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if now := n.mainProcess(n.agent.Pod); now != before {
		t.Errorf("process %s at first, %s now", before, now)
	}
	n.peaksBelow(60 * mib)
}
