package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"jettison/e2e/vm"
)

// The shipped agent, with its 64 MiB, runs with a runtime that lists 10,000 finished pods. It
// starts, lists them repeatedly, removes their containers one by one after reading each again, and
// is not OOM-killed. The runtime is a fake: an emulated node cannot start 10,000 containers in
// time, and listing all of them takes seconds.
func TestTenThousandDeadContainersFitTheAgentsMemory(t *testing.T) {
	needsContainerd(t, "the fake runtime serves in a folder that the overlay for containerd mounts")
	const dir, enough = "/run/containerd/dead", 100
	n := startNodeWith(t, vm.Options{MiB: 2048}) // the fake uses hundreds of megabytes, too
	read := n.serves(dir, "./internal/node/garbage", "TestServesDeadContainers")
	var endpoint string
	n.until("the fake runtime serves", func() (err error) { endpoint, err = read("endpoint"); return err })
	// the first list takes minutes on an emulated CPU, with its 10,000 statuses
	n.startAgentWithin(10*time.Minute, config("containerRuntimeEndpoint: %s\nruntimeWait: 10m\npodGoneAfter: 5s\ncontainerGCPeriod: 5s", endpoint))
	before := n.mainProcess(n.agent.Pod)
	// three passes are postponed because the runtime is slow, and each lists everything
	err := n.Eventually(n.ctx, 20*time.Minute, "the agent has removed containers", func(context.Context) error {
		text, err := read("removed")
		removed := 0
		if _, wrong := fmt.Sscan(text, &removed); err == nil && (wrong != nil || removed < enough) {
			err = fmt.Errorf("removed containers = %q, want all", text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if now := n.mainProcess(n.agent.Pod); now != before {
		t.Errorf("agent's process id was %s, is %s: it was restarted", before, now)
	}
	n.peaksBelow(60 * mib)
}
