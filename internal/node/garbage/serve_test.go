package garbage

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// servedDir is the directory for TestServesDeadContainers, if it exists. It is below the part of
// the node's runtime directory that is mounted in the agent's pod. The file "endpoint" contains the
// address, "removed" the number of containers removed so far.
const servedDir = "/run/containerd/dead"

// TestServesDeadContainers serves the runtime of a node with 10,000 finished pods of one container
// each, until it is ended. e2e tests the effect on the agent.
func TestServesDeadContainers(t *testing.T) {
	if _, err := os.Stat(servedDir); os.Getenv("JETTISON_LIVE") == "" || err != nil {
		t.Skip("run by e2e in its virtual machine")
	}
	t.Setenv("TMPDIR", servedDir)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	r := deadNode(t, 1)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(servedDir, name+".new"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(servedDir, name+".new"), filepath.Join(servedDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write("removed", "0")
	write("endpoint", r.Endpoint())
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			removed := 0
			r.Change(func() { removed = dead - len(r.Containers) })
			write("removed", fmt.Sprint(removed))
		}
	}
}
