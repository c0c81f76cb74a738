package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"jettison/api"
	"jettison/e2e/vm"
)

// The agent is killed in the middle of an eviction. The next agent resumes it: the pod gets the
// rest of its grace period, no other pod is chosen, and the eviction keeps its one record, which
// the agent completes. The kernel's log has one line about it.
func TestPromiseAnAgentThatIsKilledGoesOn(t *testing.T) {
	n := startNode(t)
	const soft, orderly = 250 * mib, 25 * time.Second
	settings := config(`evictionHard: {memory.available: 100Mi}
evictionSoft: {memory.available: 250Mi}
evictionSoftGracePeriod: {memory.available: 1s}
evictionMaxPodGracePeriod: 60`)
	n.startAgent(settings)
	n.holding(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"), 32*mib)
	n.fillTo(soft - defaultThreshold + 90*mib)
	holder, stop := n.crossing("holder", fmt.Sprintf("on-sigterm -after %v /beat/sigterm + alloc -rate 30Mi -size 160Mi", orderly), soft)
	told := n.sigtermTime(holder)
	n.until("the eviction is kept", func() error { return n.reads("/var/lib/jettison/state.json", string(holder.Object.UID)) })

	n.shell("kill -9 " + n.mainProcess(n.agent.Pod))
	if err := n.agent.Remove(n.ctx); err != nil {
		t.Fatal(err)
	}
	n.startAgent(settings)
	if line := n.agentLogs("resuming eviction", 1); line.Fields["uid"] != string(holder.Object.UID) {
		t.Errorf("it goes on with %v", line.Fields)
	}
	n.dies(holder)
	if took := elapsed(told, stop().Empty); took < orderly {
		t.Errorf("pod died %v after SIGTERM, it needs %v", took, orderly)
	}
	n.evictedFor("memory.available", holder)

	n.until("the record is whole", func() error {
		text, err := n.agent.Exec(n.ctx, "/jettison", "records", "-o", "jsonl")
		if err != nil {
			return err
		}
		var record api.Record
		if err := json.Unmarshal([]byte(text), &record); err != nil {
			return fmt.Errorf("%w in %s", err, text)
		}
		if record.Pod.UID != string(holder.Object.UID) || record.Outcome != api.OutcomeBack {
			return fmt.Errorf("unexpected record of the eviction: %+v", record)
		}
		return nil
	})
	if log := n.shell("dmesg"); strings.Count(log, "jettison: evicting pod default/holder") != 1 {
		t.Errorf("the kernel's log has no line, or more than one:\n%s", log[max(0, len(log)-2000):])
	}
}
