package deschedule

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// An ended pod needs no other node: nodeFit does not keep it, as it does in 0.36.0
// (descheduler#1677).
func TestEndedPodNeedsNoNode(t *testing.T) {
	nowhere := selects("no", "where")
	for is, c := range map[v1.PodPhase]struct {
		strategy string
		args     any
	}{
		v1.PodSucceeded: {PodLifeTime, &PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(600)), States: []string{"Succeeded"}}},
		v1.PodFailed:    {RemoveFailedPods, &RemoveFailedPodsArgs{}},
	} {
		p := plan{strategy: c.strategy, args: c.args, evictor: &DefaultEvictorArgs{NodeFit: true}, nodes: two(),
			pods: podList(pod("p", "n1", phase(is), nowhere))}
		if r := p.run(t); !slices.Equal(names(r), []string{"p"}) {
			t.Errorf("%s pod: evictions = %v, want p; skipped %v", is, names(r), r.Skipped)
		}
	}
}

// Ended and terminating pods are no replicas. 0.36.0 counts them and evicts the only running pod of
// an owner (descheduler#845), and keeps ended pods for minReplicas.
func TestOnlyActivePodsAreReplicas(t *testing.T) {
	p := lifeTimePlan(func(p *plan) {
		p.evictor = &DefaultEvictorArgs{MinReplicas: 2}
		p.pods = podList(pod("running", "n1"), pod("failed", "n1", phase(v1.PodFailed)), pod("succeeded", "n2", phase(v1.PodSucceeded)),
			pod("terminating", "n2", term), pod("pending", "n1", phase(v1.PodPending), owned("ReplicaSet", "two")),
			pod("other", "n2", owned("ReplicaSet", "two")))
	})
	r := p.run(t)
	got := slices.Sorted(slices.Values(names(r)))
	if want := []string{"failed", "other", "pending", "succeeded"}; !slices.Equal(got, want) ||
		!strings.Contains(skipReason(r, "running"), "1 active pods, fewer than minReplicas 2") {
		t.Errorf("evictions = %v, want %v; skipped %v, want running because of minReplicas", got, want, r.Skipped)
	}
}

// Ended pods occupy no room; terminating pods keep theirs until they are gone, as for a scheduler.
func TestRoomOfEndedAndTerminatingPods(t *testing.T) {
	whole := request("cpu", 2000)
	for is, c := range map[string]struct {
		edit edit
		want int
	}{"failed": {phase(v1.PodFailed), 1}, "succeeded": {phase(v1.PodSucceeded), 1}, "terminating": {term, 0}} {
		p := lifeTimePlan(func(p *plan) {
			p.args = &PodLifeTimeArgs{MaxPodLifeTimeSeconds: new(uint(600)), Selected: Selected{Namespaces: &Namespaces{Include: []string{"old"}}}}
			p.evictor = &DefaultEvictorArgs{NodeFit: true}
			p.pods = podList(pod("p", "n1", whole, inSpace("old")), pod("q", "n2", whole, c.edit))
		})
		if r := p.run(t); len(r.Evictions) != c.want {
			t.Errorf("%s pod on n2: evictions = %v, want %d; skipped %v", is, names(r), c.want, r.Skipped)
		}
	}
}
