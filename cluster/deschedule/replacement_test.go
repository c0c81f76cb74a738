package deschedule

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cluster/model"
)

// PodLifeTime without an age evicts no pod whose replacement matches as soon as it runs: the limit
// ends the plan, and the next one would evict the replacement.
func TestReplacementThatMatchesAtOnce(t *testing.T) {
	fit := &DefaultEvictorArgs{NodeFit: true, NodeSelector: "pool=a"}
	loop := fmt.Sprintf(evictionLoop, PodLifeTime)
	for name, c := range map[string]struct {
		evictor *DefaultEvictorArgs
		edit    edit
		second  *v1.Node
		want    string // the reason to stay; empty: the pod is evicted
	}{
		"matches":                              {nil, func(*v1.Pod) {}, machine("n2", 4000), loop},
		"matches on its own node":              {nil, func(*v1.Pod) {}, machine("n2", 4000, cordoned), loop},
		"ended":                                {nil, phase(v1.PodFailed), machine("n2", 4000), ""},
		"no owner":                             {nil, func(p *v1.Pod) { bare(p); annotation(evictAnnotation)(p) }, machine("n2", 4000), ""},
		"too young":                            {&DefaultEvictorArgs{MinPodAge: &metav1.Duration{Duration: time.Minute}}, started(time.Hour), machine("n2", 4000), ""},
		"fits nowhere":                         {nil, request("cpu", 90000), machine("n2", 4000), ""},
		"gets the only node of the evictor":    {fit, request("cpu", 2000), machine("n2", 64000, nodeLabel("pool", "a")), ""},
		"may get the evictor's node later":     {fit, func(*v1.Pod) {}, machine("n2", 2000, nodeLabel("pool", "a")), loop},
		"stays where nodeFit finds no other n": {&DefaultEvictorArgs{NodeFit: true}, func(*v1.Pod) {}, machine("n2", 4000, cordoned), "nodeFit: pod fits on no other node: node is cordoned"},
	} {
		p := plan{strategy: PodLifeTime, args: &PodLifeTimeArgs{States: []string{"Running", "Failed"}}, evictor: c.evictor,
			nodes: cluster(machine("n1", 8000), c.second),
			pods:  podList(pod("p0", "n1", c.edit), pod("p1", "n1", owned("ReplicaSet", "other"), c.edit)), limits: &limits{1, -1, -1}}
		if r := p.run(t); slices.Contains(names(r), "p0") != (c.want == "") || skipReason(r, "p0") != c.want {
			t.Errorf("%s: evictions = %v, skipped %v, want reason %q", name, names(r), r.Skipped, c.want)
		}
	}
}

// A condition that has just changed matches a minimum time of 0.
func TestConditionThatJustChanged(t *testing.T) {
	p := pod("p", "n1", func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: metav1.NewTime(t0)}}
	})
	a := &PodLifeTimeArgs{Conditions: []PodConditionFilter{{Type: "Ready", MinTimeSinceLastTransitionSeconds: new(uint(0))}}}
	if a.matchReason(&model.Pod{Pod: p}, t0) == "" {
		t.Error("matchReason = \"\", want a match")
	}
}

// A pod is the replacement of a move if it was created after all others of the owner, within an hour.
func TestReplacementsOfMoves(t *testing.T) {
	m := &PastMove{Newest: t0, At: t0.Add(time.Second)}
	for age, want := range map[time.Duration]bool{0: false, -1: true, -time.Second - replacementDelay + 1: true, -time.Second - replacementDelay: false} {
		if got := m.madeReplacement(&model.Pod{Pod: pod("p", "n1", aged(age))}); got != want {
			t.Errorf("created %v after the newest pod: replacement %t, want %t", -age, got, want)
		}
	}
}

// The replacements in the resulting cluster run on their node, or are pending without one.
func TestReplacementsInResult(t *testing.T) {
	p := plan{strategy: PodLifeTime, args: lifeTime(), nodes: two(), pods: podList(pod("p", "n1"), pod("q", "n1", selects("no", "node")))}
	got := map[string]string{}
	for _, made := range p.run(t).ResultingSnapshot.Pods {
		got[made.Name] = string(made.Status.Phase) + " " + string(made.UID)
	}
	if want := "map[p+next:Running p+next q+next:Pending q+next]"; fmt.Sprint(got) != want {
		t.Errorf("resulting pods = %v, want %s", got, want)
	}
}
