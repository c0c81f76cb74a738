package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"jettison/e2e/guestapi"
	"jettison/e2e/vm"
)

// config returns a config file of the agent with conditions that clear soon. Further lines are
// formatted as by fmt.Sprintf.
func config(format string, args ...any) string {
	return "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nevictionPressureTransitionPeriod: " + transition.String() + "\n" +
		fmt.Sprintf(format, args...) + "\n"
}

// conditionReasons are the kubelet's, for false and true.
var conditionReasons = map[string][2]string{
	"MemoryPressure": {"KubeletHasSufficientMemory", "KubeletHasInsufficientMemory"},
	"DiskPressure":   {"KubeletHasNoDiskPressure", "KubeletHasDiskPressure"},
	"PIDPressure":    {"KubeletHasSufficientPID", "KubeletHasInsufficientPID"},
}

// condition waits until the agent logs that a condition of the node has become true, or false, for
// the first time, and asserts the kubelet's reason.
func (n *node) condition(condition string, status bool) vm.LogLine {
	n.t.Helper()
	var found vm.LogLine
	n.until(fmt.Sprintf("the agent says that %s is %v", condition, status), func() error {
		lines := n.agentLog()
		for _, l := range lines {
			if l.Msg == "condition changed" && l.Fields["condition"] == condition && l.Fields["status"] == status {
				found = l
				return nil
			}
		}
		return fmt.Errorf("condition is not in %d log lines", len(lines))
	})
	want := conditionReasons[condition][0]
	if status {
		want = conditionReasons[condition][1]
	}
	if found.Fields["reason"] != want {
		n.t.Errorf("reason of condition %s (%v) = %v, want %s", condition, status, found.Fields["reason"], want)
	}
	return found
}

// transition is evictionPressureTransitionPeriod of config.
const transition = 2 * time.Second

// expectConditionCycle asserts that the agent set a condition before an eviction was complete, and waits
// until it clears it, after the transition period. It may clear before the eviction completes: the
// resource can be back before the last process has ended.
func (n *node) expectConditionCycle(condition string, evicted vm.LogLine) {
	n.t.Helper()
	raised, cleared := n.condition(condition, true), n.condition(condition, false)
	// The agent logs a new condition after the kill. On a busy node it may get CPU time only when the
	// victim's processes have ended.
	late := min(200*time.Millisecond+evicted.Duration("crossedToKill")+evicted.Duration("killToEmpty"), transition/2)
	if raised.Time.After(evicted.Time) || cleared.Time.Sub(raised.Time) < transition-late {
		n.t.Errorf("condition %s was set at %v and cleared at %v, eviction was at %v", condition, raised.Time, cleared.Time, evicted.Time)
	}
}

// sigtermTime returns the time at which a pod with the behaviour "on-sigterm /beat/sigterm" got its
// SIGTERM, in nanoseconds of CLOCK_MONOTONIC. It waits for that.
func (n *node) sigtermTime(p *vm.Pod) (at int64) {
	n.t.Helper()
	n.until(p.String()+" is told to end", func() error {
		text, err := n.ReadFile(n.ctx, "/run/beats/"+string(p.Object.UID)+"/sigterm", 0)
		if err == nil {
			at, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		}
		return err
	})
	return at
}

// elapsed returns the time between two instants of CLOCK_MONOTONIC.
func elapsed(from, to int64) time.Duration { return time.Duration(to - from) }

// crossing starts a pod that will cross a threshold of memory.available, and the guest's sampler on
// it.
func (n *node) crossing(name, behaviour string, threshold int64) (*vm.Pod, func() guestapi.Sample) {
	n.t.Helper()
	p := n.run(vm.NewPod(name, "", "", behaviour))
	stop := n.watchBelow(p, threshold)
	if m, err := n.Memory(n.ctx); err != nil || m.Available() < threshold {
		n.t.Fatalf("%d MiB available before the scenario starts (%v)", m.Available()/mib, err)
	}
	return p, stop
}

// A pod's usage is between the soft threshold and the hard one. The agent leaves it alone during
// the soft threshold's grace period, then sends SIGTERM and gives it the time that it needs to end.
func TestMemorySoftWaitsAndLetsThePodEnd(t *testing.T) {
	n := startNode(t)
	const soft, grace, orderly = 250 * mib, 5 * time.Second, 3 * time.Second
	n.startAgent(config(`evictionHard: {memory.available: 100Mi}
evictionSoft: {memory.available: 250Mi}
evictionSoftGracePeriod: {memory.available: %v}
evictionMaxPodGracePeriod: 30`, grace))
	n.holding(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"), 32*mib)
	n.fillTo(soft - defaultThreshold + 90*mib)
	holder, stop := n.crossing("holder", fmt.Sprintf("on-sigterm -after %v /beat/sigterm + alloc -rate 30Mi -size 160Mi", orderly), soft)
	raised := n.condition("MemoryPressure", true)
	told := n.sigtermTime(holder)
	n.dies(holder)
	seen := stop()
	// The sampler may be late by its largest gap.
	if waited := elapsed(seen.Crossed-seen.MaxGap, told); seen.Crossed == 0 || waited < grace || waited > grace+10*time.Second {
		t.Errorf("SIGTERM came %v after the soft threshold was met, want %v", waited, grace)
	}
	if took := elapsed(told, seen.Empty); took < orderly {
		t.Errorf("pod died %v after SIGTERM, it needs %v", took, orderly)
	}
	if seen.Lowest < defaultThreshold {
		t.Errorf("lowest available memory = %d MiB: the hard threshold was met", seen.Lowest/mib)
	}
	if err := n.Eventually(n.ctx, time.Minute, "the runtime knows how it ended", func(ctx context.Context) error { return holder.Ended(ctx, 0) }); err != nil {
		t.Error(err)
	}
	// The pod's memory is back before its sandbox is removed, so the condition may clear before the
	// agent logs the eviction.
	line := n.evictedFor("memory.available", holder)
	if cleared := n.condition("MemoryPressure", false); !raised.Time.Before(line.Time.Add(-orderly)) || cleared.Time.Sub(raised.Time) < grace+orderly {
		t.Errorf("condition was set at %v and cleared at %v, eviction was at %v", raised.Time, cleared.Time, line.Time)
	}
	if m, err := n.Memory(n.ctx); err != nil || m.Available() < soft {
		t.Errorf("%d MiB available after the eviction (%v), want more than %d", m.Available()/mib, err, soft/mib)
	}
}

// A pod gets SIGTERM because of the soft threshold, has a minute to end, and continues to leak. The
// hard threshold ends it immediately.
func TestPromiseMemorySoftIsCutShortByHard(t *testing.T) {
	n := startNode(t)
	const soft, grace = 250 * mib, time.Second
	n.startAgent(config(`evictionHard: {memory.available: 100Mi}
evictionSoft: {memory.available: 250Mi}
evictionSoftGracePeriod: {memory.available: %v}
evictionMaxPodGracePeriod: 60`, grace))
	n.holding(vm.NewPod("burstable", "64Mi", "", "alloc -size 32Mi"), 32*mib)
	n.fillTo(soft - defaultThreshold + 60*mib)
	leaker, stop := n.crossing("leaker", "on-sigterm /beat/sigterm + alloc -rate 20Mi -size 4Gi", defaultThreshold)
	n.condition("MemoryPressure", true)
	told := n.sigtermTime(leaker)
	n.dies(leaker)
	seen := stop()
	n.expectMemoryAvailable()
	// If the agent is faster than the sampling interval, the sampler does not see the hard
	// threshold met.
	if seen.Crossed != 0 && seen.Crossed < told {
		t.Errorf("hard threshold was met %v before the pod got SIGTERM", elapsed(seen.Crossed, told))
	}
	if took := elapsed(seen.Crossed, seen.Empty); seen.Crossed != 0 && (seen.Empty == 0 || took > 10*time.Second) {
		t.Errorf("pod died %v after the hard threshold was met", took)
	}
	if line := n.agentLogs("grace period cut short", 1); line.Fields["victim"] != leaker.String() || line.Fields["threshold"] != float64(defaultThreshold) {
		t.Errorf("agent cut the grace period short: %v", line.Fields)
	}
	if err := n.Eventually(n.ctx, time.Minute, "the runtime knows how it ended", func(ctx context.Context) error { return leaker.Ended(ctx, 137) }); err != nil {
		t.Error(err)
	}
	n.agentLogs("evicted", 1)
	n.condition("MemoryPressure", false)
	t.Logf("SIGTERM, hard threshold %v later, dead %v after that", elapsed(told, seen.Crossed), elapsed(seen.Crossed, seen.Empty))
}
