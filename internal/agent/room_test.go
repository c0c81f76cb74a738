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

// tells has the runtime tell its plugin that it has these pods, and no other.
func (l *testLoop) tells(pods nri.Pods) {
	l.onTold(nri.Update{State: nri.State{Synced: true}, Pods: pods})
}

// beside is a critical pod that runs beside the one that the node begins with, in a list and as the plugin was told.
func (l *testLoop) beside(t *testing.T, uid string, containers ...cri.Container) (first, second *cri.Listing) {
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

// A critical pod is made anew: the old one is stopped and removed, as the runtime tells its plugin. There is room, though the list has both.
func TestAPodThatEndedHoldsNoRoom(t *testing.T) {
	l := fullLoop(t, "", nil)
	l.o.Config.MaxPods = 2
	first, second := l.beside(t, "old")
	l.tells(nri.Pods{nodetest.UID: first, "old": second})
	if why := l.refuses("new"); why == "" {
		t.Error("there is room for two")
	}
	<-l.gate.preempting.Requests()
	l.tells(nri.Pods{nodetest.UID: first})
	if why := l.refuses("new"); why != "" || len(l.gate.preempting.Requests()) > 0 {
		t.Errorf("%q", why)
	}
}

// A sandbox is stopped while a container of it still dies: the room is taken until that is dead, or a critical pod would be let in beside it.
func TestAPodHoldsRoomUntilItsContainersAreDead(t *testing.T) {
	l := fullLoop(t, "", nil)
	l.o.Config.MaxPods = 2
	first, second := l.beside(t, "old", cri.Container{ID: "dying", SandboxID: "s-old", State: cri.Running})
	l.tells(nri.Pods{nodetest.UID: first, "old": second})
	stopped := &cri.Listing{Sandboxes: append([]cri.PodSandbox(nil), second.Sandboxes...), Containers: second.Containers}
	stopped.Sandboxes[0].Ready = false
	l.tells(nri.Pods{nodetest.UID: first, "old": stopped})
	if why := l.refuses("new"); why == "" {
		t.Error("let in beside one that dies")
	}
	l.tells(nri.Pods{nodetest.UID: first, "old": {Sandboxes: stopped.Sandboxes}})
	if why := l.refuses("new"); why != "" {
		t.Errorf("all of the other is dead: %q", why)
	}
}

// A victim's room stays free when the agent has done with it, though the runtime is not listed yet.
func TestTheRoomOfAVictimStaysFree(t *testing.T) {
	for _, tells := range []bool{true, false} {
		l := fullLoop(t, "", nil)
		ctx, cancel := context.WithCancel(t.Context())
		listing, err := cri.NewLister(l.Client).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if tells {
			l.tells(nri.Pods{nodetest.UID: &listing})
		}
		l.refuses("critical")
		l.asked(ctx)
		l.dies(t)
		l.evictions.OnEvent(time.Now(), <-l.evictions.Events()) // the runtime has cleaned up
		if tells {
			l.tells(nri.Pods{})
		}
		l.onTick(ctx, time.Now())
		l.look(ctx, time.Now())
		l.look(ctx, time.Now())
		l.gate.admission.Changed()
		if why := l.refuses("critical"); why != "" || len(l.manager.Lives()) > 0 {
			t.Errorf("tells %v: the pod for which the victim went is refused: %q, %d lives", tells, why, len(l.manager.Lives()))
		}
		cancel()
		l.evictions.Wait()
	}
}
