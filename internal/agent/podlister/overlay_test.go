package podlister

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"jettison/cri"
	"jettison/cri/nri"
	"jettison/stats/read"
)

// ids returns the sandboxes and containers of an index, for comparison.
func ids(x read.Index) map[string][]string {
	out := map[string][]string{}
	for uid, p := range x {
		for _, s := range p.Sandboxes {
			out[uid] = append(out[uid], fmt.Sprintf("%s ready=%v", s.ID, s.Ready))
		}
		for _, c := range p.Containers {
			out[uid] = append(out[uid], c.SandboxID+"/"+c.ID+" "+c.State.String())
		}
		slices.Sort(out[uid])
	}
	return out
}

// The list has more data on its pods; events add new ones. Neither argument is changed.
func TestOverlay(t *testing.T) {
	made := time.Unix(1e9, 0)
	listed := read.NewIndex(cri.Listing{
		Sandboxes: []cri.PodSandbox{
			{ID: "s1", UID: "same", Attempt: 4, CreatedAt: made, Ready: true, Annotations: map[string]string{"all": "of them"}},
			{ID: "s2", UID: "again", Attempt: 4, CreatedAt: made, CgroupParent: "/kubepods/podagain"},
			{ID: "s3", UID: "grown", Attempt: 1, CreatedAt: made, Ready: true},
			{ID: "s4", UID: "gone", CreatedAt: made},
		},
		Containers: []cri.Container{{ID: "c1", SandboxID: "s1", State: cri.Running}, {ID: "c3", SandboxID: "s3", State: cri.Running}},
	})
	events := read.NewIndex(cri.Listing{
		Sandboxes: []cri.PodSandbox{
			{ID: "s1", UID: "same", Ready: true}, {ID: "s2b", UID: "again", Ready: true, CgroupParent: "/kubepods/podagain"},
			{ID: "s3", UID: "grown", Ready: true}, {ID: "s5", UID: "new", Ready: true},
		},
		Containers: []cri.Container{{ID: "c1", SandboxID: "s1", State: cri.Running}, {ID: "c3b", SandboxID: "s3", State: cri.Created}},
	})
	was, wasEvents := ids(listed), ids(events)
	got := overlay(listed, events)
	want := map[string][]string{
		"same":  {"s1 ready=true", "s1/c1 running"},
		"again": {"s2 ready=false", "s2b ready=true"},
		"grown": {"s3 ready=true", "s3/c3 running", "s3/c3b created"},
		"gone":  {"s4 ready=false"},
		"new":   {"s5 ready=true"},
	}
	if d := cmp.Diff(want, ids(got)); d != "" {
		t.Errorf("pods of the overlay (-want +got):\n%s", d)
	}
	if got["same"] != listed["same"] {
		t.Error("a pod with more data in the list was replaced")
	}
	if s := got["again"].Sandboxes[0]; s.ID != "s2b" || s.Attempt != 5 {
		t.Errorf("newest sandbox = %+v, want s2b with attempt 5", s)
	}
	if d := cmp.Diff(was, ids(listed)) + cmp.Diff(wasEvents, ids(events)); d != "" {
		t.Errorf("an argument changed (-before +after): %s", d)
	}
	if n := len(overlay(nil, events)); n != 4 {
		t.Errorf("overlay without a list has %d pods, want 4", n)
	}
	if same := overlay(listed, nil); len(same) != len(listed) {
		t.Errorf("overlay without events has %d pods, want %d", len(same), len(listed))
	}
	if allocs := testing.AllocsPerRun(10, func() { overlay(listed, read.Index{"same": events["same"]}) }); allocs > 2 {
		t.Errorf("overlay without additions made %v allocations, want at most 2", allocs)
	}
}

// An update creates entries only for changed pods, and drops pods that are gone.
func TestUnchangedPodsAreKept(t *testing.T) {
	pod := func(uid string) *cri.Listing {
		return &cri.Listing{Sandboxes: []cri.PodSandbox{{ID: "s" + uid, UID: uid, Ready: true}}}
	}
	same, gone := pod("same"), pod("gone")
	var events runtimeEvents
	first := events.update(time.Now(), nri.Pods{"same": same, "changed": pod("changed"), "gone": gone})
	second := events.update(time.Now(), nri.Pods{"same": same, "changed": pod("changed")})
	if len(first) != 3 || len(second) != 2 || second["same"] != first["same"] || second["changed"] == first["changed"] {
		t.Errorf("index = %v, then %v, want an unchanged entry for same", first, second)
	}
	if third := events.update(time.Now(), nil); len(third) != 0 {
		t.Errorf("index of an empty update = %v, want none", third)
	}
}
