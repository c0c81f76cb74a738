package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cri"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/agent/podlister"
	"jettison/internal/node/nodetest"
	"jettison/stats"
)

// memoryOnly excludes the disks of the machine that runs the tests.
const memoryOnly = "evictionHard: {memory.available: 100Mi}\n"

// refusal returns the gate's answer for a pod of a class ("besteffort/", or empty for Guaranteed).
func (l *testLoop) refusal(name, class string) string {
	now := time.Now()
	l.admission(now)
	return l.b.admission.Reject(now, &cri.PodSandbox{
		ID: "s-" + name, UID: name, Namespace: "default", Name: name, CgroupParent: "/kubepods/" + class + "pod" + name,
	}, "")
}

// findNoKubelet makes the loop look for a kubelet, and find none.
func (l *testLoop) findNoKubelet() {
	l.writeControlFiles()
	l.kubelet.LookNow()
}

// Under memory pressure the gate refuses a BestEffort pod with the kubelet's message, and no other
// pod; afterwards none.
func TestGateRefusesUnderPressure(t *testing.T) {
	l := newLoop(t, memoryOnly+"evictionPressureTransitionPeriod: 1ms\n", nil)
	l.findNoKubelet()
	if why := l.refusal("calm", "besteffort/"); why != "" {
		t.Errorf("refusal while nothing is short: %s", why)
	}
	l.Available(90)
	l.measure(time.Now())
	const want = "jettison refuses pod default/be: Evicted: Pod was rejected: The node had condition: [MemoryPressure]. "
	if why := l.refusal("be", "besteffort/"); why != want {
		t.Errorf("refusal = %q, want %q", why, want)
	}
	if why := l.refusal("bu", "burstable/"); why != "" {
		t.Errorf("refusal of a Burstable pod: %s", why)
	}
	l.onRefusal(<-l.gate.admission.Refusals())
	if !strings.Contains(l.Text(), "pod rejected") {
		t.Errorf("the refusal is not logged:\n%s", l.Text())
	}
	l.Available(900)
	now := time.Now().Add(time.Minute) // beyond the transition period
	l.measure(now)
	l.measure(now.Add(time.Minute))
	if why := l.refusal("be", "besteffort/"); why != "" {
		t.Errorf("refusal after the pressure: %s", why)
	}
	g := l.state().Gate
	if g == nil || g.Asked || g.Refused != 1 || g.Admitted != 3 || g.Reasons["Evicted"] != 1 {
		t.Errorf("state of the gate = %+v", g)
	}
}

// Allocatable is the capacity minus the reservations, and the maximum number of pods.
func TestAllocatable(t *testing.T) {
	l := newLoop(t, "maxPods: 1\nsystemReserved: {memory: 100Mi}\nevictionHard: {memory.available: 100Mi}\n", nil)
	l.findNoKubelet()
	got := l.allocatable(l.capacity())
	memory, pods := got[v1.ResourceMemory], got[v1.ResourcePods]
	if memory.Value() != 824<<20 || pods.Value() != 1 {
		t.Errorf("allocatable = %v of memory, %v pods, want 824Mi and 1", memory.String(), pods.String())
	}
	if why := l.refusal("first", "burstable/"); why != "" {
		t.Errorf("refusal of the first pod: %s", why)
	}
	if why := l.refusal("second", "burstable/"); !strings.Contains(why, "OutOfpods") {
		t.Errorf("refusal of the second pod = %q, want OutOfpods", why)
	}
	l.o.Config.LocalStorageCapacityIsolation = false
	capacity := v1.ResourceList{v1.ResourceEphemeralStorage: memory}
	if _, ok := l.allocatable(capacity)[v1.ResourceEphemeralStorage]; ok {
		t.Error("ephemeral storage is allocatable without local storage isolation")
	}
}

// Running pods hold resources, and objects from clients take effect. A pod that is being killed is
// not preempted.
func TestGateUsesObjects(t *testing.T) {
	l := newLoop(t, memoryOnly, nil)
	l.findNoKubelet()
	l.onListed(podlister.Update{Pods: l.Runs()})
	put := `[{"metadata": {"uid": "` + nodetest.UID + `", "namespace": "default", "name": "pod"}, "spec": {"containers": [
		{"name": "c", "resources": {"requests": {"memory": "700Mi"}}}]}},
		{"metadata": {"uid": "big", "namespace": "default", "name": "big"}, "spec": {"containers": [
		{"name": "c", "resources": {"requests": {"memory": "400Mi"}}}]}}]`
	if _, _, err := l.objects.Store().Put(strings.NewReader(put), true, podstore.ByRoot); err != nil {
		t.Fatal(err)
	}
	<-l.objects.Changed()
	l.onObjects()
	const want = "OutOfmemory: Pod was rejected: Node didn't have enough resource: memory, requested: 419430400, used: 734003200, capacity: 968884224"
	if why := l.refusal("big", "burstable/"); !strings.Contains(why, want) {
		t.Errorf("refusal = %q, want %q", why, want)
	}
	l.manager.SetPodAside(time.Now(), nodetest.UID)
	l.gate.admission.Changed()
	l.admission(time.Now())
	n, err := l.b.admission.State(time.Now())
	if err != nil || len(n.Pods) != 1 || !n.Pods[0].Protected || n.Pods[0].Ending {
		t.Errorf("pods of the node = %+v (%v), want one that is protected", n.Pods, err)
	}
}

// A dry run refuses no pod, and counts the pods that it would have refused.
func TestGateInADryRun(t *testing.T) {
	l := newLoop(t, memoryOnly, func(o *Options) { o.DryRun = true })
	l.findNoKubelet()
	l.Available(90)
	l.measure(time.Now())
	if why := l.refusal("be", "besteffort/"); why != "" {
		t.Errorf("refusal in a dry run: %s", why)
	}
	if g := l.gate.admission.State(true); g.Enforced || g.Observed != 1 {
		t.Errorf("state of the gate = %+v, want one observed", g)
	}
}

// A DaemonSet's next pod is held off as soon as its object is known, under any UID; a pod of
// another controller is not.
func TestDaemonSetReplacementIsHeldOff(t *testing.T) {
	l := newLoop(t, "", nil)
	put := func(uid, owner string) {
		t.Helper()
		body := fmt.Sprintf(`[{"metadata":{"uid":%q,"namespace":"default","name":"%s-%.5s","ownerReferences":[{"apiVersion":"apps/v1",
			"kind":"DaemonSet","name":%[2]q,"uid":"u","controller":true}]},"spec":{"containers":[{"name":"c"}]}}]`, uid, owner, uid+"xxxxx")
		if _, _, err := l.objects.Store().Put(strings.NewReader(body), false, podstore.ByMember); err != nil {
			t.Fatal(err)
		}
		l.onObjects()
	}
	put(nodetest.UID, "one")
	now := time.Now()
	l.gate.Evicted(now, nodetest.UID, stats.SignalMemoryAvailable, "short")
	put("next", "one")
	put("other", "two")
	heldOff := func(uid string) (string, bool) { return l.gate.HeldOff(now, uid, ownerOf(l.objects.Object(uid))) }
	if why, held := heldOff("next"); !held || !strings.Contains(why, "DaemonSet") {
		t.Errorf("the DaemonSet's next pod has the hold-off %q", why)
	}
	if why, held := heldOff("other"); held {
		t.Errorf("another DaemonSet's pod is held off: %q", why)
	}
	if got := l.gate.state(now).Holds; len(got) != 3 {
		t.Errorf("hold-offs in the state = %+v, want 3", got)
	}
}
