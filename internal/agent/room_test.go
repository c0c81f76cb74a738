package agent

import (
	"context"
	"testing"
	"time"

	"jettison/cri"
	"jettison/cri/nri"
	"jettison/internal/agent/podlister"
	"jettison/internal/node/nodetest"
	"jettison/stats/read"
)

// runtimeHas processes events of the runtime with exactly these pods.
func (l *testLoop) runtimeHas(pods nri.Pods) {
	l.onEvents(nri.Update{State: nri.State{Synced: true}, Pods: pods})
}

// addCritical adds a critical pod to the node's pod in the list, and returns both as events.
func (l *testLoop) addCritical(t *testing.T, uid string, containers ...cri.Container) (first, second *cri.Listing) {
	t.Helper()
	listing, err := cri.NewLister(l.Client).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	old := *criticalPod(uid)
	old.Ready, old.CreatedAt = true, time.Now().Add(-time.Hour)
	second = &cri.Listing{Sandboxes: []cri.PodSandbox{old}, Containers: containers}
	both := cri.Listing{Sandboxes: append(listing.Sandboxes[:len(listing.Sandboxes):len(listing.Sandboxes)], old)}
	both.Containers = append(listing.Containers[:len(listing.Containers):len(listing.Containers)], containers...)
	l.onListed(podlister.Update{Pods: read.NewIndex(both)})
	return &listing, second
}

// A critical pod is recreated: the old one is stopped and removed by the runtime's events. Its
// resources are free although the list has both.
func TestEndedPodHoldsNothing(t *testing.T) {
	l := fullLoop(t, "", nil)
	l.o.Config.MaxPods = 2
	first, second := l.addCritical(t, "old")
	l.runtimeHas(nri.Pods{nodetest.UID: first, "old": second})
	if why := l.criticalRefusal("new"); why == "" {
		t.Error("a third pod is admitted on a node for two")
	}
	<-l.gate.preempting.Requests()
	l.runtimeHas(nri.Pods{nodetest.UID: first})
	if why := l.criticalRefusal("new"); why != "" || len(l.gate.preempting.Requests()) > 0 {
		t.Errorf("refusal after the old pod ended = %q, want none", why)
	}
}

// A sandbox is stopped while one of its containers still dies: the pod holds its resources until
// that is dead.
func TestPodHoldsResourcesUntilItsContainersAreDead(t *testing.T) {
	l := fullLoop(t, "", nil)
	l.o.Config.MaxPods = 2
	first, second := l.addCritical(t, "old", cri.Container{ID: "dying", SandboxID: "s-old", State: cri.Running})
	l.runtimeHas(nri.Pods{nodetest.UID: first, "old": second})
	stopped := &cri.Listing{Sandboxes: append([]cri.PodSandbox(nil), second.Sandboxes...), Containers: second.Containers}
	stopped.Sandboxes[0].Ready = false
	l.runtimeHas(nri.Pods{nodetest.UID: first, "old": stopped})
	if why := l.criticalRefusal("new"); why == "" {
		t.Error("a pod is admitted while a container of the old one dies")
	}
	l.runtimeHas(nri.Pods{nodetest.UID: first, "old": {Sandboxes: stopped.Sandboxes}})
	if why := l.criticalRefusal("new"); why != "" {
		t.Errorf("refusal after the container died = %q, want none", why)
	}
}

// A victim's resources stay free after the agent's part is done, although the runtime is not listed
// yet.
func TestVictimsResourcesStayFree(t *testing.T) {
	for _, tells := range []bool{true, false} {
		l := fullLoop(t, "", nil)
		ctx, cancel := context.WithCancel(t.Context())
		listing, err := cri.NewLister(l.Client).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if tells {
			l.runtimeHas(nri.Pods{nodetest.UID: &listing})
		}
		l.criticalRefusal("critical")
		l.handleRequest(ctx)
		l.endVictim(t)
		l.evictions.OnEvent(time.Now(), <-l.evictions.Events()) // the runtime has cleaned up
		if tells {
			l.runtimeHas(nri.Pods{})
		}
		l.onTick(ctx, time.Now())
		l.look(ctx, time.Now())
		l.look(ctx, time.Now())
		l.gate.admission.Changed()
		if why := l.criticalRefusal("critical"); why != "" || len(l.manager.Lives()) > 0 {
			t.Errorf("events %v: refusal of the critical pod %q, %d evictions in progress", tells, why, len(l.manager.Lives()))
		}
		cancel()
		l.evictions.Wait()
	}
}
