package e2e

import (
	"fmt"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/e2e/vm"
)

// The agent is killed in the middle of its own pass, after the third of 23 containers. The next
// agent completes the pass: it keeps the last dead container of the crashing pod, and running
// containers keep running.
func TestAnAgentThatIsKilledInAPassFinishesIt(t *testing.T) {
	const dead = 24
	g := &garbage{node: startNode(t), pods: map[string]*gcPod{}, ids: map[string]string{}}
	pod := g.sandbox("crashing", 0)
	g.mustRun(pod, "side", 0, vm.ImageWorkload, "sleep")
	var last string
	for i := range uint32(dead) {
		last = g.mustRun(pod, "main", i, vm.ImageWorkload)
	}
	g.ended(1)
	const settings = "containerGCPeriod: 20s\nimageGCPeriod: 24h"
	containers := func() (ended []string) {
		all, err := g.Inventory(g.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all.Containers {
			if c.State != cri.ContainerState_CONTAINER_RUNNING && c.PodSandboxId == pod.sandbox {
				ended = append(ended, c.Id)
			}
		}
		return ended
	}
	g.startAgent(config(settings))
	dir := g.Runtime.Containers
	entries := int(g.number("ls " + dir + " | wc -l"))
	g.shell(fmt.Sprintf(`end=$(($(date +%%s) + 120)); while [ $(ls %s | wc -l) -gt %d ]; do [ $(date +%%s) -lt $end ] || exit 1; done; kill -9 %s`,
		dir, entries-3, g.mainProcess(g.agent.Pod)))
	left := len(containers())
	t.Logf("killed when %d of %d containers were left", left, dead)
	if left < 2 || left > dead-3 {
		t.Fatalf("%d of %d containers are left: not the middle of the pass", left, dead)
	}
	if err := g.agent.Remove(g.ctx); err != nil {
		t.Fatal(err)
	}
	g.startAgent(config(settings))
	g.until("the next pass has done the rest", func() error {
		if ended := containers(); len(ended) > 1 {
			return fmt.Errorf("%d containers are left", len(ended))
		}
		return nil
	})
	g.compareLists("what is left", containers(), []string{last})
	line := g.agentLogs("garbage collected", 1)
	t.Logf("the next pass: %v", line.Fields)
	if line.Fields["removed"] != float64(left-1) {
		t.Errorf("containers removed by the next pass = %v, want %d", line.Fields["removed"], left-1)
	}
	g.ended(2) // the running one, and the agent
}
