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

// config is a config file of the agent's own, with conditions that clear soon; further lines as in fmt.Sprintf.
func config(format string, args ...any) string {
	return "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nevictionPressureTransitionPeriod: " + transition.String() + "\n" +
		fmt.Sprintf(format, args...) + "\n"
}

// conditionReasons are the kubelet's, false and true.
var conditionReasons = map[string][2]string{
	"MemoryPressure": {"KubeletHasSufficientMemory", "KubeletHasInsufficientMemory"},
	"DiskPressure":   {"KubeletHasNoDiskPressure", "KubeletHasDiskPressure"},
	"PIDPressure":    {"KubeletHasSufficientPID", "KubeletHasInsufficientPID"},
}

// condition waits until the agent says that a condition of the node has become true, or false, for the first time, with the
// kubelet's reason for it.
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
		return fmt.Errorf("not in %d lines", len(lines))
	})
	want := conditionReasons[condition][0]
	if status {
		want = conditionReasons[condition][1]
	}
	if found.Fields["reason"] != want {
		n.t.Errorf("%s is %v because of %v, want %s", condition, status, found.Fields["reason"], want)
	}
	return found
}

// transition is evictionPressureTransitionPeriod of config.
const transition = 2 * time.Second

// comesAndGoes asserts that a condition was raised before the agent was done with an eviction, and waits until it is cleared, not
// before the transition period is over. That may be before the eviction is: what was short is back before the last process is.
func (n *node) comesAndGoes(condition string, evicted vm.LogLine) {
	n.t.Helper()
	raised, cleared := n.condition(condition, true), n.condition(condition, false)
	const late = 200 * time.Millisecond // that a condition is raised is written after the kill
	if raised.Time.After(evicted.Time) || cleared.Time.Sub(raised.Time) < transition-late {
		n.t.Errorf("%s is raised at %v and cleared at %v, the eviction was at %v", condition, raised.Time, cleared.Time, evicted.Time)
	}
}

// toldAt is when a pod with the behaviour "on-sigterm /beat/sigterm" got its SIGTERM, in nanoseconds of CLOCK_MONOTONIC. It waits
// until it did.
func (n *node) toldAt(p *vm.Pod) (at int64) {
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

// since is the time between two instants of CLOCK_MONOTONIC.
func since(from, to int64) time.Duration { return time.Duration(to - from) }

// crossing starts a pod that has yet to cross a threshold of memory.available, and the guest's sampler on it.
func (n *node) crossing(name, behaviour string, threshold int64) (*vm.Pod, func() guestapi.Sample) {
	n.t.Helper()
	p := n.run(vm.NewPod(name, "", "", behaviour))
	stop := n.watchBelow(p, threshold)
	if m, err := n.Memory(n.ctx); err != nil || m.Available() < threshold {
		n.t.Fatalf("%d MiB available before the scenario has begun (%v)", m.Available()/mib, err)
	}
	return p, stop
}

// A pod sits between the soft threshold and the hard one. It is left alone for as long as the soft one's grace period, then it is
// told to end and gets the time it needs for that.
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
	told := n.toldAt(holder)
	n.dies(holder)
	seen := stop()
	// The sampler may be late by as much as it ever was.
	if waited := since(seen.Crossed-seen.MaxGap, told); seen.Crossed == 0 || waited < grace || waited > grace+10*time.Second {
		t.Errorf("told to end %v after the soft threshold was met, want %v", waited, grace)
	}
	if took := since(told, seen.Empty); took < orderly {
		t.Errorf("dead %v after it was told to end, it needs %v", took, orderly)
	}
	if seen.Lowest < defaultThreshold {
		t.Errorf("only %d MiB were left: the hard threshold was met", seen.Lowest/mib)
	}
	if err := n.Eventually(n.ctx, time.Minute, "the runtime knows how it ended", func(ctx context.Context) error { return holder.Ended(ctx, 0) }); err != nil {
		t.Error(err)
	}
	// The pod's memory is back before its sandbox is gone, so the condition may clear before the agent calls it evicted.
	line := n.evictedFor("memory.available", holder)
	if cleared := n.condition("MemoryPressure", false); !raised.Time.Before(line.Time.Add(-orderly)) || cleared.Time.Sub(raised.Time) < grace+orderly {
		t.Errorf("the condition is raised at %v and cleared at %v, the eviction was at %v", raised.Time, cleared.Time, line.Time)
	}
	if m, err := n.Memory(n.ctx); err != nil || m.Available() < soft {
		t.Errorf("%d MiB available after the eviction (%v), want more than %d", m.Available()/mib, err, soft/mib)
	}
}

// A pod is told to end because of the soft threshold, has a minute for it, and goes on leaking: the hard threshold ends it at once.
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
	told := n.toldAt(leaker)
	n.dies(leaker)
	seen := stop()
	n.memoryIsBack()
	// Where the agent is faster than the guest's samples are apart, nobody else has seen the hard threshold met.
	if seen.Crossed != 0 && seen.Crossed < told {
		t.Errorf("the hard threshold was met %v before the pod was told to end", since(seen.Crossed, told))
	}
	if took := since(seen.Crossed, seen.Empty); seen.Crossed != 0 && (seen.Empty == 0 || took > 10*time.Second) {
		t.Errorf("dead %v after the hard threshold was met", took)
	}
	if line := n.agentSays("grace period cut short", 1); line.Fields["victim"] != leaker.String() || line.Fields["threshold"] != float64(defaultThreshold) {
		t.Errorf("cut short: %v", line.Fields)
	}
	if err := n.Eventually(n.ctx, time.Minute, "the runtime knows how it ended", func(ctx context.Context) error { return leaker.Ended(ctx, 137) }); err != nil {
		t.Error(err)
	}
	n.agentSays("evicted", 1)
	n.condition("MemoryPressure", false)
	t.Logf("told to end, hard threshold %v later, dead %v after that", since(told, seen.Crossed), since(seen.Crossed, seen.Empty))
}
