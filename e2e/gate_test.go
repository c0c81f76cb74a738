package e2e

import (
	"strings"
	"testing"

	"jettison/e2e/vm"
)

// An evicted pod that its owner starts again is kept out while the pressure that it died for is fresh, and let in afterwards.
func TestAnEvictedPodIsKeptOut(t *testing.T) {
	n := startNode(t)
	n.startAgent("")
	n.agentSays("the runtime tells of its pods as they come and go", 1)
	victim := leakerBesideOthers(n)
	victim.Fate = vm.Any // its cgroup will have another life in it
	n.agentSays("evicted", 1)
	if _, err := n.Run(n.ctx, victim.Object); err == nil || !strings.Contains(err.Error(), "jettison") || !strings.Contains(err.Error(), "low on resource: memory") {
		t.Fatalf("started again at once: %v", err)
	}
	n.agentSays("an evicted pod is kept out", 1)
	victim.Object.Spec.Containers[0].Args = []string{"sleep"}
	n.until("it is let in again", func() error {
		_, err := n.Run(n.ctx, victim.Object)
		return err
	})
}
