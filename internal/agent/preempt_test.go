package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/admit"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/agent/podlister"
	"jettison/internal/node/nodetest"
	"jettison/stats/read"
)

// fullLoop is a loop on a node with room for one pod, which is there.
func fullLoop(t *testing.T, text string, change func(*Options)) *testLoop {
	t.Helper()
	l := newLoop(t, memoryOnly+"maxPods: 1\n"+text, change)
	l.settled()
	l.onListed(podlister.Update{Pods: l.Runs()})
	put := `[{"metadata": {"uid": "` + nodetest.UID + `", "namespace": "default", "name": "pod"}, "spec": {"containers": [{"name": "c"}]}}]`
	if _, _, err := l.objects.Store().Put(strings.NewReader(put), true, podstore.ByRoot); err != nil {
		t.Fatal(err)
	}
	<-l.objects.Changed()
	l.onObjects()
	return l
}

// criticalPod is one that the runtime asks about, by its annotation.
func criticalPod(uid string) *cri.PodSandbox {
	return &cri.PodSandbox{
		ID: "s-" + uid, UID: uid, Namespace: "kube-system", Name: uid, CgroupParent: "/kubepods/burstable/pod" + uid,
		Annotations: map[string]string{"jettison/priority": "2000000000"},
	}
}

// refuses is what the runtime is answered for a critical pod.
func (l *testLoop) refuses(uid string) string {
	now := time.Now()
	l.admission(now)
	return l.b.admission.Refuse(now, criticalPod(uid), "")
}

// asked takes what was asked of the loop.
func (l *testLoop) asked(ctx context.Context) {
	l.gate.preempting.OnRequest(ctx, time.Now(), <-l.gate.preempting.Requests())
}

// dies has the pod that is there end, and the loop hear of it.
func (l *testLoop) dies(t *testing.T) {
	t.Helper()
	if l.manager.Life(nodetest.UID) == nil {
		t.Fatalf("nobody goes\n%s", l.Text())
	}
	l.Populated(nodetest.Pod, false)
	for range 2 {
		l.evictions.OnEvent(time.Now(), <-l.evictions.Events())
		l.gate.admission.Changed()
	}
	l.measure(time.Now())
	l.admission(time.Now())
}

// A critical pod that the runtime is refused has another stopped, with the kubelet's words in its eviction; the runtime's retry is let in as
// soon as that is dead, and nobody else is while room is kept.
func TestACriticalPodPreemptsInTheRuntime(t *testing.T) {
	l := fullLoop(t, "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	if why := l.asks("ordinary", "besteffort/"); !strings.Contains(why, "OutOfpods") || len(l.gate.preempting.Requests()) > 0 {
		t.Errorf("%q", why)
	}
	why := l.refuses("critical")
	if !strings.Contains(why, "OutOfpods: Pod was rejected: Node didn't have enough resource: pods") || !strings.Contains(why, "preemption may free resources for it") {
		t.Fatalf("%q", why)
	}
	l.asked(ctx)
	life := l.manager.Life(nodetest.UID)
	if life == nil {
		t.Fatalf("nobody goes\n%s", l.Text())
	}
	if e := life.Eviction(); e.Signal != eviction.SignalPreempted || e.Reason != "Preempting" || e.GracePeriodSeconds != 30 ||
		e.Message != "Preempted in order to admit critical pod" {
		t.Errorf("%+v", e)
	}
	if why := l.refuses("critical"); why == "" {
		t.Error("let in while the other one lives")
	}
	l.asked(ctx) // again: nothing more is done
	l.shown.publish(l.loop)
	if g := l.shown.last.Load().state.Gate; g == nil || len(g.Making) != 1 || g.Making[0].Pod.UID != "critical" || g.Making[0].Victims[0].UID != nodetest.UID {
		t.Errorf("state %+v", g)
	}
	l.dies(t)
	if why := l.asks("ordinary", "besteffort/"); !strings.Contains(why, "OutOfpods") {
		t.Errorf("another one takes the room: %q", why)
	}
	if why := l.refuses("critical"); why != "" {
		t.Errorf("the other one is dead: %q\n%s", why, l.Text())
	}
	listing, err := cri.NewLister(l.Client).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	listing.Sandboxes = append(listing.Sandboxes, *criticalPod("critical"))
	listing.Sandboxes[len(listing.Sandboxes)-1].Ready = true
	l.onListed(podlister.Update{Pods: read.NewIndex(listing)})
	if kept := l.gate.preempting.Promised(time.Now()); len(kept) > 0 {
		t.Errorf("it runs, and room is kept for it: %+v", kept)
	}
	for _, line := range []string{"preemption started", "preemption succeeded", "preempted for pod kube-system/critical: Node didn't"} {
		if !strings.Contains(l.Text(), line) {
			t.Errorf("no %q in the log:\n%s", line, l.Text())
		}
	}
	cancel()
	l.evictions.Wait()
}

// What the runtime has told before a question is taken counts: nobody goes for room that is there.
func TestWhatTheRuntimeHasToldCountsBeforeAnyPodGoes(t *testing.T) {
	l := fullLoop(t, "", nil)
	if why := l.refuses("critical"); !strings.Contains(why, "preemption may free resources for it") {
		t.Fatalf("%q", why)
	}
	l.Runtime.Change(func() { l.Runtime.Sandboxes, l.Runtime.Containers = nil, nil })
	ctx, cancel := context.WithCancel(t.Context())
	wait := l.pods.Start(ctx)
	for l.pods.Ask(); len(l.pods.Updates()) == 0; time.Sleep(time.Millisecond) { // it is in the slot, and not taken
	}
	l.asked(ctx)
	if l.manager.Life(nodetest.UID) != nil {
		t.Errorf("one goes that has ended\n%s", l.Text())
	}
	if why := l.refuses("critical"); why != "" {
		t.Errorf("%q", why)
	}
	cancel()
	wait()
	l.evictions.Wait()
}

// A client that preempts waits until the room is there.
func TestAClientPreempts(t *testing.T) {
	l := fullLoop(t, "preemption: false\n", nil)
	if why := l.refuses("critical"); why == "" || strings.Contains(why, "room is made") || len(l.gate.preempting.Requests()) > 0 {
		t.Errorf("switched off in the runtime: %q", why)
	}
	ctx, cancel := context.WithCancel(t.Context())
	pod := &v1.Pod{}
	priority := int32(2_000_000_000)
	pod.UID, pod.Spec.Priority = "critical", &priority
	got := make(chan admit.Result, 1)
	go func() {
		r, err := l.b.admission.Preempt(ctx, pod)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	l.asked(ctx)
	select {
	case r := <-got:
		t.Fatalf("%+v", r)
	default:
	}
	l.dies(t)
	if r := <-got; !r.Admit {
		t.Errorf("%+v\n%s", r, l.Text())
	}
	if why := l.refuses("critical"); why != "" {
		t.Errorf("%q", why)
	}
	cancel()
	l.evictions.Wait()
}

// Beside a kubelet, in a dry run, and where one of the victims is not there any more nobody is stopped.
func TestWhoPreemptsNobody(t *testing.T) {
	pod := &v1.Pod{}
	priority := int32(2_000_000_000)
	pod.UID, pod.Spec.Priority = "critical", &priority
	for want, change := range map[string]func(*testLoop){
		"dry run: no pod is stopped": nil,
		"a kubelet is on this node, and ma": func(l *testLoop) {
			l.Write("proc/812/comm", "kubelet\n")
			l.Write("proc/812/cgroup", "0::/system.slice/kubelet.service\n")
			l.Write("proc/812/status", "Uid:\t0\t0\t0\t0\n") // and nobody has looked since
		},
	} {
		l := fullLoop(t, "", func(o *Options) { o.DryRun = change == nil })
		if change != nil {
			change(l)
		}
		l.admission(time.Now())
		got := make(chan admit.Result, 1)
		go func() {
			r, err := l.b.admission.Preempt(t.Context(), pod)
			if err != nil {
				t.Error(want, err)
			}
			got <- r
		}()
		l.asked(t.Context())
		if l.manager.Life(nodetest.UID) != nil {
			t.Fatalf("%s: it is stopped\n%s", want, l.Text())
		}
		if r := <-got; r.Admit || r.Reason != admit.ReasonUnexpected || !strings.Contains(r.Message, "preemption: ") || !strings.Contains(r.Message, want) {
			t.Errorf("%s: %+v", want, r)
		}
	}
	l := fullLoop(t, "", nil)
	lives, err := l.preempt(t.Context(), time.Now(), []string{nodetest.UID, "nobody"}, "r")
	if lives != nil || err == nil || !strings.Contains(err.Error(), "it is not there any more") || l.manager.Life(nodetest.UID) != nil {
		t.Errorf("%v, %v", lives, err)
	}
}

// What comes back under the UID of a pod that is dead is another pod: it holds room, and is not on its way out, though the runtime still cleans
// up after the first.
func TestAPodThatCameBackHoldsRoom(t *testing.T) {
	l := fullLoop(t, "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	l.Runtime.Change(func() { l.Runtime.Hang = map[string]bool{"StopContainer": true, "StopPodSandbox": true} })
	l.admission(time.Now())
	lives, err := l.preempt(ctx, time.Now(), []string{nodetest.UID}, "r")
	if err != nil {
		t.Fatal(err)
	}
	state := func() admit.NodeState {
		t.Helper()
		l.gate.admission.Changed()
		l.admission(time.Now())
		n, err := l.b.admission.State(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := state(); len(n.Pods) != 1 || !n.Pods[0].Ending {
		t.Errorf("it is being stopped: %+v", n.Pods)
	}
	l.manager.Emptied(eviction.Stamp{Time: time.Now()}, lives[0])
	if n := state(); len(n.Pods) != 0 || !lives[0].Leaving() {
		t.Errorf("it is dead: %+v", n.Pods)
	}
	l.Runs()
	l.Runtime.Change(func() {
		l.Runtime.Sandboxes[0].Id, l.Runtime.Containers[0].PodSandboxId = "again", "again"
	})
	listing, err := cri.NewLister(l.Client).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.onListed(podlister.Update{Pods: read.NewIndex(listing)})
	if n := state(); len(n.Pods) != 1 || n.Pods[0].Ending || n.Pods[0].Spared {
		t.Errorf("it came back: %+v", n.Pods)
	}
	cancel()
	l.evictions.Wait()
}
