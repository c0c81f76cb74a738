package eviction

import (
	"strings"
	"testing"
	"time"

	"jettison/stats"
)

// A pod that has ended, such as one killed for memory, keeps its files until something removes
// them. No eviction would return them: no pod is evicted for them, and the reason names them.
func TestFilesOfAPodThatHasEndedCostNobodyElse(t *testing.T) {
	m := explainer(t)
	quietAt(m, epoch, 40*gib, map[string]uint64{"ended": gib, "b": 3 * gib})
	at, d := epoch.Add(time.Minute), Decision{}
	for range 9 {
		in := disks(at, 5*gib, map[string]uint64{"ended": 31 * gib, "b": 8 * gib})
		for i := range in.Summary.Pods {
			if p := &in.Summary.Pods[i]; p.PodRef.UID == "ended" {
				p.Populated = stats.Some(false)
			}
		}
		m.Observe(at, &in.Summary.Node, Situation{})
		m.Step(at, in)
		if d = m.StepAfterReclaim(at, in); len(d.Evictions) > 0 {
			t.Fatalf("%s is evicted at %v, want no eviction", d.Evictions[0].Pod.PodRef.UID, at.Sub(epoch))
		}
		at = at.Add(5 * time.Second)
	}
	if !strings.Contains(d.Reason, "30Gi is held by pods that have ended") {
		t.Errorf("reason = %q, want the usage of ended pods", d.Reason)
	}
	// Once it lives again, it is the victim.
	if uid, _ := firstEviction(m, at, time.Minute, 5*gib, map[string]uint64{"ended": 31 * gib, "b": 8 * gib}, ""); uid != "ended" {
		t.Errorf("victim = %q, want ended, which lives again", uid)
	}
}
