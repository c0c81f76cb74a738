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

// memoryOnly keeps the disks of the machine that tests out of what the node has.
const memoryOnly = "evictionHard: {memory.available: 100Mi}\n"

// asks is what the runtime is answered for a pod of a class ("besteffort/", or empty for a Guaranteed one), now.
func (l *testLoop) asks(name, class string) string {
	now := time.Now()
	l.admission(now)
	return l.b.admission.Refuse(now, &cri.PodSandbox{
		ID: "s-" + name, UID: name, Namespace: "default", Name: name, CgroupParent: "/kubepods/" + class + "pod" + name,
	}, "")
}

// settled is a loop that has looked for a kubelet, and found none.
func (l *testLoop) settled() {
	l.control()
	l.kubelet.LookNow()
}

// Under memory pressure the runtime is refused a BestEffort pod, in the kubelet's words, and no other; once it is over, none.
func TestTheRuntimeIsAnsweredByTheNodesConditions(t *testing.T) {
	l := newLoop(t, memoryOnly+"evictionPressureTransitionPeriod: 1ms\n", nil)
	l.settled()
	if why := l.asks("calm", "besteffort/"); why != "" {
		t.Errorf("nothing is short: %s", why)
	}
	l.Available(90)
	l.measure(time.Now())
	const want = "jettison refuses pod default/be: Evicted: Pod was rejected: The node had condition: [MemoryPressure]. "
	if why := l.asks("be", "besteffort/"); why != want {
		t.Errorf("got %q, want %q", why, want)
	}
	if why := l.asks("bu", "burstable/"); why != "" {
		t.Error(why)
	}
	l.onRefused(<-l.gate.admission.Refusals())
	if !strings.Contains(l.Text(), "pod rejected") {
		t.Errorf("not logged:\n%s", l.Text())
	}
	l.Available(900)
	now := time.Now().Add(time.Minute) // beyond the transition period
	l.measure(now)
	l.measure(now.Add(time.Minute))
	if why := l.asks("be", "besteffort/"); why != "" {
		t.Errorf("the pressure is over: %s", why)
	}
	g := l.state().Gate
	if g == nil || g.Asked || g.Refused != 1 || g.Admitted != 3 || g.Reasons["Evicted"] != 1 {
		t.Errorf("state %+v", g)
	}
}

// What is allocatable is what the node has, less what is kept back; and so many pods.
func TestWhatIsAllocatable(t *testing.T) {
	l := newLoop(t, "maxPods: 1\nsystemReserved: {memory: 100Mi}\nevictionHard: {memory.available: 100Mi}\n", nil)
	l.settled()
	got := l.allocatable(l.capacity())
	memory, pods := got[v1.ResourceMemory], got[v1.ResourcePods]
	if memory.Value() != 824<<20 || pods.Value() != 1 {
		t.Errorf("%v of memory, %v pods", memory.String(), pods.String())
	}
	if why := l.asks("first", "burstable/"); why != "" {
		t.Error(why)
	}
	if why := l.asks("second", "burstable/"); !strings.Contains(why, "OutOfpods") {
		t.Errorf("there is room for one: %q", why)
	}
	l.o.Config.LocalStorageCapacityIsolation = false
	capacity := v1.ResourceList{v1.ResourceEphemeralStorage: memory}
	if _, ok := l.allocatable(capacity)[v1.ResourceEphemeralStorage]; ok {
		t.Error("local storage is counted where nobody isolates it")
	}
}

// What runs holds room, and what a client says of a pod is taken from then on. A pod that is being killed is not killed for another.
func TestWhatTheGateHearsOfPods(t *testing.T) {
	l := newLoop(t, memoryOnly, nil)
	l.settled()
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
	if why := l.asks("big", "burstable/"); !strings.Contains(why, want) {
		t.Errorf("got %q, want %q", why, want)
	}
	l.manager.Aside(time.Now(), nodetest.UID)
	l.gate.admission.Changed()
	l.admission(time.Now())
	n, err := l.b.admission.State(time.Now())
	if err != nil || len(n.Pods) != 1 || !n.Pods[0].Spared || n.Pods[0].Ending {
		t.Errorf("%+v, %v", n.Pods, err)
	}
}

// A dry run keeps nobody out, and without a gate nobody is asked about.
func TestWhoIsAsked(t *testing.T) {
	l := newLoop(t, memoryOnly, func(o *Options) { o.DryRun = true })
	l.settled()
	l.Available(90)
	l.measure(time.Now())
	if why := l.asks("be", "besteffort/"); why != "" {
		t.Errorf("a dry run refuses: %s", why)
	}
	if g := l.gate.admission.State(true); g.Enforced || g.Observed != 1 {
		t.Errorf("%+v", g)
	}
}

// A DaemonSet's next pod is kept out as soon as its object is known, under whatever UID; one of another controller is not.
func TestADaemonSetsNextPodIsKeptOut(t *testing.T) {
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
		t.Errorf("let in: %q", why)
	}
	if why, held := heldOff("other"); held {
		t.Errorf("kept out: %q", why)
	}
	if got := l.gate.state(now).Holds; len(got) != 3 {
		t.Errorf("shown %+v", got)
	}
}
