package garbage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"jettison/reclaim"
)

// A kubelet that starts between the plan and a step, or between two, takes over: nothing more is removed.
func TestAKubeletThatStartsInThePass(t *testing.T) {
	for removed := range 3 {
		n := newNode(t)
		n.open(func(o *Options) { o.Mode = "" })
		looks := 0
		n.beside = func(string) (bool, string) {
			looks++
			return looks > 1 && len(n.r.Removed) >= removed, "process 7 is a kubelet"
		}
		n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Evicted}, Synced: true})
		for i := range 4 {
			n.container(fmt.Sprint("c", i), "s", uidA, exited, time.Hour, "")
		}
		n.r.Answer["RemoveContainer"] = func(m any) any { n.clock = n.clock.Add(besideAgain); return m }
		r := n.pass(Containers, reclaim.Periodic)
		if len(n.removed()) != removed || r.Err != nil || r.Count(Skipped) != 4-removed || !strings.Contains(r.Done[3].Why, "process 7 is a kubelet") {
			t.Errorf("after %d: removed %v, %v, %+v", removed, n.removed(), r.Err, r.Done)
		}
	}
}
