package ui

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"jettison/api"
	"jettison/e2e/vm"
)

// settings disable the gate, which would reject a pod while the pressure of an earlier one lasts.
const settings = "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\ngate: false\n"

// A live agent on the test node, behind its relayed socket. The page shows a leak as it happens and
// an eviction within a second of the agent's event, and survives a restart of the agent.
func TestLivePage(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a virtual machine: run make ui-test")
	}
	ctx := t.Context()
	n, err := vm.Boot(ctx, vm.Options{Kernel: os.Getenv("JETTISON_KERNEL")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "l") // a socket's path is short
	must(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s.sock")
	must(n.Relay(ctx, path))
	agent, err := n.StartAgent(ctx, settings)
	must(err)
	_, err = agent.WaitLog(ctx, time.Minute, "started", 1)
	must(err)
	told := evictions(ctx, n)
	b := open(t, serve(t, path))
	b.until(contains("#live", "live since"))
	b.until("document.querySelectorAll('svg .curve').length > 0")

	for i := range 3 {
		leaker, err := n.Run(ctx, vm.NewPod(fmt.Sprintf("leaker%d", i), "", "", "alloc -rate 60Mi -size 8Gi"))
		must(err)
		leaker.Expected = vm.Dies
		shows := fmt.Sprintf("document.querySelector('#eviction-list')?.textContent.includes('default/leaker%d')", i)
		b.within(3*time.Minute, shows)
		after := time.Since(<-told)
		if t.Logf("leaker%d: shown %v after the agent's event", i, after.Round(time.Millisecond)); after > time.Second {
			t.Error("eviction was shown later than a second after the event")
		}
		must(leaker.WaitDead(ctx))
	}
	b.until("document.querySelector('details[open] .ladder').textContent.includes('killed')")
	b.shot("live")

	must(agent.Remove(ctx))
	b.until(contains("#alert", "The agent has been unreachable since"))
	agent, err = n.StartAgent(ctx, settings)
	must(err)
	_, err = agent.WaitLog(ctx, time.Minute, "started", 1)
	must(err)
	b.until("document.querySelector('#alert').hidden")
	for i := range 3 {
		b.until(contains("#eviction-list", fmt.Sprintf("default/leaker%d", i)))
	}
	b.shot("live-restarted")
}

// evictions returns the times at which this machine receives each eviction event of the agent.
func evictions(ctx context.Context, n *vm.Node) <-chan time.Time {
	told := make(chan time.Time, 64)
	go func() {
		_ = n.API().Events(ctx, api.EventOptions{Follow: true}, func(e api.Event) error {
			if e.Message == "evicted" {
				told <- time.Now()
			}
			return nil
		})
	}()
	return told
}
