package agent

import (
	"slices"
	"testing"
	"time"

	"jettison/internal/node/nodetest"
	"jettison/stats"
	"jettison/stats/read"
)

// A crash in the middle of a kill also leaves settings in the cgroups of containers outside their pods'.
func TestKillableCgroups(t *testing.T) {
	n := nodetest.New(t)
	var s stats.Summary
	_ = n.Reader.Quick(time.Now(), nil, &s)
	b := &builder{pods: read.Index{"u": {Outside: []stats.OutsideContainer{{ID: "a", Cgroup: "k8s.io/a"},
		{ID: "b", Process: stats.ProcessID{PID: 2}}}}}}
	got := b.killable(n.Reader)
	slices.Sort(got)
	if want := []string{"k8s.io/a", nodetest.Pod}; !slices.Equal(got, want) {
		t.Errorf("cgroups = %q, want %q", got, want)
	}
	if got := b.sharedProcesses(); !slices.Equal(got, []stats.ProcessID{{PID: 2}}) {
		t.Errorf("processes in shared cgroups = %v, want PID 2", got)
	}
}
