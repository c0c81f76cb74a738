package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"jettison/api"
	"jettison/e2e/vm"
)

// Twenty pods leak in sequence on a node without idle CPU time, each right after the eviction of the
// one before, with other pods that hold memory. jettison explain, run during a leak, names the pod
// that the threshold then evicts, each time.
func TestExplainNamesTheVictim(t *testing.T) {
	n := startNode(t)
	n.startAgent(config("gate: false")) // the next leaker starts while the pressure of the last one lasts
	n.holding(vm.NewPod("guaranteed", "96Mi", "96Mi", "alloc -size 32Mi"), 32*mib)
	n.holding(vm.NewPod("burstable", "64Mi", "", "alloc -size 48Mi"), 48*mib)
	n.holding(vm.NewPod("besteffort", "", "", "alloc -size 24Mi"), 24*mib)
	n.run(vm.NewPod("busy", "", "", "spin -threads 8"))
	n.fillTo(160 * mib)
	const rounds = 20
	right := 0
	for i := range rounds {
		p := n.run(vm.NewPod(fmt.Sprintf("leaker%d", i), "", "", "alloc -rate 15Mi -size 4Gi"))
		named, asked := "", 0
		dead := func() bool { return n.reads("/sys/fs/cgroup/"+p.Cgroup+"/cgroup.events", "populated 0") == nil }
		n.until("the leaker has no process left", func() error {
			if dead() {
				return nil
			}
			first, err := n.firstRanked()
			if err == nil && !dead() { // an answer after its death is about other pods
				named, asked = first, asked+1
			}
			return errors.Join(err, errors.New("the pod still leaks"))
		})
		p.Expected = vm.Dies
		line := n.agentLogs("evicted", i+1)
		if uid := line.Fields["uid"]; uid == named && asked > 0 {
			right++
		} else {
			t.Errorf("round %d: evicted pod %v, want the one that the last of %d answers named: %q", i, uid, asked, named)
		}
	}
	t.Logf("%d of %d victims were named", right, rounds)
}

// firstRanked returns the UID of the pod that jettison explain ranks first for memory.available.
func (n *node) firstRanked() (string, error) {
	text, err := n.agent.Exec(n.ctx, "/jettison", "explain", "memory.available", "-o", "json")
	if err != nil {
		return "", err
	}
	var o api.Outlook
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return "", fmt.Errorf("%w in %s", err, text)
	}
	if len(o.Thresholds) == 0 || len(o.Thresholds[0].Ranking) == 0 || o.Thresholds[0].NoEvictionReason != "" {
		return "", fmt.Errorf("explain names no candidate: %s", text)
	}
	return o.Thresholds[0].Ranking[0].UID, nil
}
