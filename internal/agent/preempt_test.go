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

// fullLoop returns a loop on a node for one pod, which runs.
func fullLoop(t *testing.T, text string, change func(*Options)) *testLoop {
	t.Helper()
	l := newLoop(t, memoryOnly+"maxPods: 1\n"+text, change)
	l.findNoKubelet()
	l.onListed(podlister.Update{Pods: l.Runs()})
	put := `[{"metadata": {"uid": "` + nodetest.UID + `", "namespace": "default", "name": "pod"}, "spec": {"containers": [{"name": "c"}]}}]`
	if _, _, err := l.objects.Store().Put(strings.NewReader(put), true, podstore.ByRoot); err != nil {
		t.Fatal(err)
	}
	<-l.objects.Changed()
	l.onObjects()
	return l
}

// criticalPod returns the sandbox of a pod that is critical by its annotation.
func criticalPod(uid string) *cri.PodSandbox {
	return &cri.PodSandbox{
		ID: "s-" + uid, UID: uid, Namespace: "kube-system", Name: uid, CgroupParent: "/kubepods/burstable/pod" + uid,
		Annotations: map[string]string{"jettison/priority": "2000000000"},
	}
}

// criticalRefusal returns the gate's answer for a critical pod.
func (l *testLoop) criticalRefusal(uid string) string {
	now := time.Now()
	l.admission(now)
	return l.b.admission.Reject(now, criticalPod(uid), "")
}

// handleRequest processes the pending request for preemption.
func (l *testLoop) handleRequest(ctx context.Context) {
	l.gate.preempting.OnRequest(ctx, time.Now(), <-l.gate.preempting.Requests())
}

// endVictim ends the running pod, and lets the loop process that.
func (l *testLoop) endVictim(t *testing.T) {
	t.Helper()
	if l.manager.Life(nodetest.UID) == nil {
		t.Fatalf("no pod is being stopped\n%s", l.Text())
	}
	l.Populated(nodetest.Pod, false)
	for range 2 {
		l.evictions.OnEvent(time.Now(), <-l.evictions.Events())
		l.gate.admission.Changed()
	}
	l.measure(time.Now())
	l.admission(time.Now())
}

// A victim's death is processed before a look, without a turn of the loop for it.
func TestReportsBeforeALook(t *testing.T) {
	l := fullLoop(t, "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	if l.onReports() {
		t.Error("onReports without an eviction = true, want false")
	}
	l.criticalRefusal("critical")
	l.handleRequest(ctx)
	life := l.manager.Life(nodetest.UID)
	l.Populated(nodetest.Pod, false)
	for len(l.evictions.Events()) < 2 { // the end of the processes, and of the page cache
		time.Sleep(time.Millisecond)
	}
	if !l.onReports() || !life.Dead() {
		t.Errorf("victim is dead = %v after onReports, want true", life.Dead())
	}
	cancel()
	l.evictions.Wait()
}

// A refused critical pod has another pod stopped, with the kubelet's message in its eviction. The
// runtime's retry is admitted as soon as that one is dead, and no other pod is while resources are
// reserved.
func TestACriticalPodPreemptsInTheRuntime(t *testing.T) {
	l := fullLoop(t, "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	if why := l.refusal("ordinary", "besteffort/"); !strings.Contains(why, "OutOfpods") || len(l.gate.preempting.Requests()) > 0 {
		t.Errorf("refusal of an ordinary pod = %q, want OutOfpods without preemption", why)
	}
	why := l.criticalRefusal("critical")
	if !strings.Contains(why, "OutOfpods: Pod was rejected: Node didn't have enough resource: pods") || !strings.Contains(why, "preemption may free resources for it") {
		t.Fatalf("refusal of a critical pod = %q", why)
	}
	l.handleRequest(ctx)
	life := l.manager.Life(nodetest.UID)
	if life == nil {
		t.Fatalf("no pod is being stopped\n%s", l.Text())
	}
	if e := life.Eviction(); e.Signal != eviction.SignalPreempted || e.Reason != "Preempting" || e.GracePeriodSeconds != 30 ||
		e.Message != "Preempted in order to admit critical pod" {
		t.Errorf("eviction of the preempted pod = %+v", e)
	}
	if why := l.criticalRefusal("critical"); why == "" {
		t.Error("the critical pod is admitted while the victim lives")
	}
	l.handleRequest(ctx) // a repeated request has no effect
	l.publisher.publish(l.loop)
	if g := l.publisher.last.Load().state.Gate; g == nil || len(g.Preempting) != 1 || g.Preempting[0].Pod.UID != "critical" || g.Preempting[0].Victims[0].UID != nodetest.UID {
		t.Errorf("state of the gate = %+v, want one preemption", g)
	}
	l.endVictim(t)
	if why := l.refusal("ordinary", "besteffort/"); !strings.Contains(why, "OutOfpods") {
		t.Errorf("refusal of an ordinary pod after the preemption = %q, want OutOfpods", why)
	}
	if why := l.criticalRefusal("critical"); why != "" {
		t.Errorf("refusal of the critical pod after the victim's death = %q\n%s", why, l.Text())
	}
	listing, err := cri.NewLister(l.Client).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	listing.Sandboxes = append(listing.Sandboxes, *criticalPod("critical"))
	listing.Sandboxes[len(listing.Sandboxes)-1].Ready = true
	l.onListed(podlister.Update{Pods: read.NewIndex(listing)})
	if kept := l.gate.preempting.Reservations(time.Now()); len(kept) > 0 {
		t.Errorf("reservations after the critical pod runs = %+v, want none", kept)
	}
	for _, line := range []string{"preemption started", "preemption succeeded", "preempted for pod kube-system/critical: Node didn't"} {
		if !strings.Contains(l.Text(), line) {
			t.Errorf("the log does not contain %q:\n%s", line, l.Text())
		}
	}
	cancel()
	l.evictions.Wait()
}

// Pending lists of the runtime are processed before a request: no pod is stopped for resources that
// are free.
func TestPendingListsPreventPreemption(t *testing.T) {
	l := fullLoop(t, "", nil)
	if why := l.criticalRefusal("critical"); !strings.Contains(why, "preemption may free resources for it") {
		t.Fatalf("refusal of a critical pod = %q", why)
	}
	l.Runtime.Change(func() { l.Runtime.Sandboxes, l.Runtime.Containers = nil, nil })
	ctx, cancel := context.WithCancel(t.Context())
	wait := l.pods.Start(ctx)
	for l.pods.Ask(); len(l.pods.Updates()) == 0; time.Sleep(time.Millisecond) { // until the list is pending
	}
	l.handleRequest(ctx)
	if l.manager.Life(nodetest.UID) != nil {
		t.Errorf("a pod that has ended is stopped\n%s", l.Text())
	}
	if why := l.criticalRefusal("critical"); why != "" {
		t.Errorf("refusal although the resources are free = %q", why)
	}
	cancel()
	wait()
	l.evictions.Wait()
}

// A client's preemption waits until the resources are free.
func TestAClientPreempts(t *testing.T) {
	l := fullLoop(t, "preemption: false\n", nil)
	if why := l.criticalRefusal("critical"); why == "" || strings.Contains(why, "preemption") || len(l.gate.preempting.Requests()) > 0 {
		t.Errorf("refusal with preemption switched off = %q", why)
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
	l.handleRequest(ctx)
	select {
	case r := <-got:
		t.Fatalf("answer before the victim's death = %+v", r)
	default:
	}
	l.endVictim(t)
	if r := <-got; !r.Admit {
		t.Errorf("answer after the victim's death = %+v, want admitted\n%s", r, l.Text())
	}
	if why := l.criticalRefusal("critical"); why != "" {
		t.Errorf("refusal after the preemption = %q, want none", why)
	}
	cancel()
	l.evictions.Wait()
}

// Next to a kubelet, in a dry run, and if one of the victims has ended, no pod is stopped.
func TestPreemptionStopsNoPod(t *testing.T) {
	pod := &v1.Pod{}
	priority := int32(2_000_000_000)
	pod.UID, pod.Spec.Priority = "critical", &priority
	for want, change := range map[string]func(*testLoop){
		"dry run: no pod is stopped": nil,
		"the kubelet on this node preempts": func(l *testLoop) {
			l.Write("proc/812/comm", "kubelet\n")
			l.Write("proc/812/cgroup", "0::/system.slice/kubelet.service\n")
			l.Write("proc/812/status", "Uid:\t0\t0\t0\t0\n") // the last search was before
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
		l.handleRequest(t.Context())
		if l.manager.Life(nodetest.UID) != nil {
			t.Fatalf("%s: the pod is stopped\n%s", want, l.Text())
		}
		if r := <-got; r.Admit || r.Reason != admit.ReasonUnexpected || !strings.Contains(r.Message, "preemption: ") || !strings.Contains(r.Message, want) {
			t.Errorf("%s: answer = %+v, want a rejection with that text", want, r)
		}
	}
	l := fullLoop(t, "", nil)
	lives, err := l.preempt(t.Context(), time.Now(), []string{nodetest.UID, "missing"}, "r")
	if lives != nil || err == nil || !strings.Contains(err.Error(), "has ended") || l.manager.Life(nodetest.UID) != nil {
		t.Errorf("preempt with a missing victim = %v, %v, want an error", lives, err)
	}
}

// A pod that comes back under the UID of a dead one is another pod: it holds resources and is not
// ending, although the runtime still cleans up after the first.
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
		t.Errorf("pods while the victim is being stopped = %+v, want one ending", n.Pods)
	}
	l.manager.Emptied(eviction.Stamp{Time: time.Now()}, lives[0])
	if n := state(); len(n.Pods) != 0 || !lives[0].CleaningUp() {
		t.Errorf("pods after the victim's death = %+v, want none", n.Pods)
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
	if n := state(); len(n.Pods) != 1 || n.Pods[0].Ending || n.Pods[0].Protected {
		t.Errorf("pods after the pod came back = %+v, want one", n.Pods)
	}
	cancel()
	l.evictions.Wait()
}
