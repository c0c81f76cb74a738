package garbage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"jettison/reclaim"
)

// If a kubelet starts between the plan and a step, or between two steps, all remaining steps are
// skipped.
func TestAKubeletThatStartsInThePass(t *testing.T) {
	for removed := range 3 {
		n := newNode(t)
		n.open(func(o *Options) { o.Mode = "" })
		looks := 0
		n.findKubelet = func() (bool, string) {
			looks++
			return looks > 1 && len(n.r.Removed) >= removed, "process 7 is a kubelet"
		}
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
		for i := range 4 {
			n.container(fmt.Sprint("c", i), "s", uidA, exited, time.Hour, "")
		}
		n.r.Answer["RemoveContainer"] = func(m any) any { n.clock = n.clock.Add(kubeletFreshMax); return m }
		r := n.pass(Containers, reclaim.Periodic)
		if len(n.removed()) != removed || r.Err != nil || r.Count(Skipped) != 4-removed || !strings.Contains(r.Done[3].Why, "process 7 is a kubelet") {
			t.Errorf("kubelet after %d removals: removed %v, %v, steps %+v, want the rest skipped", removed, n.removed(), r.Err, r.Done)
		}
	}
}

// A step may wait for the runtime for minutes, so the collector searches for a kubelet again right
// before it removes files.
func TestAKubeletThatStartsInAStep(t *testing.T) {
	n := newNode(t)
	n.open(func(o *Options) { o.Mode = "" })
	here := false
	n.findKubelet = func() (bool, string) { return here, "process 7 is a kubelet" }
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
	log := "/log/pods/default_a_" + uidA + "/main/0.log"
	file := n.file(log)
	n.container("c0", "s", uidA, exited, time.Hour, "")
	n.r.ContainerStatuses = map[string]*runtimev1.ContainerStatus{"c0": {Id: "c0", State: exited, LogPath: log}}
	n.r.Answer["ContainerStatus"] = func(m any) any { here, n.clock = true, n.clock.Add(kubeletFreshMin); return m }
	r := n.pass(Containers, reclaim.Periodic)
	if len(n.removed()) != 0 || r.Err != nil || r.Count(Removed) != 0 || r.Count(Skipped) != len(r.Done) || len(r.Done) == 0 {
		t.Errorf("removed %v, %v, steps %+v, want all steps skipped", n.removed(), r.Err, r.Done)
	}
	if !exists(file) {
		t.Error("its log is gone")
	}
}
