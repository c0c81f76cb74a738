package agent

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"jettison/admit"
	"jettison/cri"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/node/nodetest"
)

// puts has a client hand over pods, and the loop take them.
func (l *testLoop) puts(t *testing.T, by podstore.By, pods string) {
	t.Helper()
	if _, _, err := l.objects.Store().Put(strings.NewReader(pods), false, by); err != nil {
		t.Fatal(err)
	}
	<-l.objects.Changed()
	l.onObjects()
	l.admission(time.Now())
}

// critical is a pod of system priority.
func critical(uid string) admit.PodAttributes {
	priority, pod := int32(2_000_000_000), &v1.Pod{}
	pod.UID, pod.Name, pod.Namespace, pod.Spec.Priority = types.UID(uid), uid, "kube-system", &priority
	return admit.PodAttributes{Pod: pod}
}

// Only root's word makes a pod critical that has others stopped: a member of the socket's group may put objects, and has nobody killed.
func TestAMembersObjectPreemptsNobody(t *testing.T) {
	for by, wants := range map[podstore.By]int{podstore.ByMember: 0, podstore.ByRoot: 1} {
		l := fullLoop(t, "", nil)
		l.puts(t, by, `[{"metadata": {"uid": "mine", "namespace": "tenant", "name": "mine"},
			"spec": {"priority": 2000000000, "containers": [{"name": "c"}]}}]`)
		why := l.b.admission.Refuse(time.Now(), &cri.PodSandbox{
			ID: "s", UID: "mine", Namespace: "tenant", Name: "mine", CgroupParent: "/kubepods/besteffort/podmine",
		}, "")
		if !strings.Contains(why, "OutOfpods") || len(l.gate.preempting.Requests()) != wants {
			t.Errorf("by %v: %q, %d ask for room, want %d", by, why, len(l.gate.preempting.Requests()), wants)
		}
	}
}

// A pod that the runtime says is critical has room made for it whatever a member puts, but no more than the runtime says that it takes.
func TestAMembersObjectMakesNoPodLarger(t *testing.T) {
	l := fullLoop(t, "", nil)
	l.puts(t, podstore.ByMember, `[{"metadata": {"uid": "critical", "namespace": "kube-system", "name": "critical"},
		"spec": {"priority": 0, "containers": [{"name": "c", "resources": {"requests": {"memory": "900Mi"}}}]}}]`)
	if why := l.refuses("critical"); !strings.Contains(why, "OutOf") || len(l.gate.preempting.Requests()) != 1 {
		t.Fatalf("%q, %d asks", why, len(l.gate.preempting.Requests()))
	}
	l.asked(t.Context())
	if kept := l.gate.preempting.Promised(time.Now()); len(kept) != 1 || kept[0].Requests["memory"] != 0 || !kept[0].Critical() {
		t.Errorf("room is made for %+v", kept)
	}
}

// A member makes no neighbour the nearest victim by what it says that one requests, nor one that is protected.
func TestAMembersObjectMakesNoVictim(t *testing.T) {
	for by, frees := range map[podstore.By]bool{podstore.ByMember: false, podstore.ByRoot: true} {
		l := fullLoop(t, "", nil)
		l.o.Config.MaxPods = 10
		if err := l.objects.Store().Delete(nodetest.UID, podstore.ByRoot); err != nil {
			t.Fatal(err)
		}
		l.puts(t, by, `[{"metadata": {"uid": "`+nodetest.UID+`", "namespace": "default", "name": "pod"},
			"spec": {"priority": 0, "containers": [{"name": "c", "resources": {"requests": {"memory": "900Mi"}}}]}}]`)
		n, err := l.b.admission.State(time.Now())
		if err != nil || len(n.Pods) != 1 || n.Pods[0].Requests["memory"] != 900<<20 {
			t.Fatalf("%+v, %v", n.Pods, err)
		}
		asks := critical("asks")
		asks.Pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("800Mi")},
		}}}
		plan, result := admit.Preempt(asks, n)
		if got := len(plan.Victims) == 1; got != frees || result.Admit {
			t.Errorf("by %v: %+v, %+v", by, plan, result)
		}
	}
	l := fullLoop(t, "", nil)
	l.o.Config.MaxPods = 10
	l.beside(t, "guard")
	l.puts(t, podstore.ByMember, `[{"metadata": {"uid": "guard", "namespace": "kube-system", "name": "guard"},
		"spec": {"priority": 0, "containers": [{"name": "c"}]}}]`)
	n, err := l.b.admission.State(time.Now())
	if err != nil || len(n.Pods) != 2 {
		t.Fatalf("%+v, %v", n.Pods, err)
	}
	for _, h := range n.Pods {
		if h.UID == "guard" && !h.Critical() {
			t.Errorf("a critical pod may go: %+v", h)
		}
	}
}

// A member takes over no object of root's: what the pod gives back stays what root says, so that no other goes for it.
func TestAMembersObjectSparesNoPod(t *testing.T) {
	l := fullLoop(t, "", nil)
	l.o.Config.MaxPods = 10
	for _, c := range []struct {
		by     podstore.By
		memory string
	}{{podstore.ByRoot, "900Mi"}, {podstore.ByMember, "1Mi"}} {
		l.puts(t, c.by, `[{"metadata": {"uid": "`+nodetest.UID+`", "namespace": "default", "name": "pod"},
			"spec": {"priority": 0, "containers": [{"name": "c", "resources": {"requests": {"memory": "`+c.memory+`"}}}]}}]`)
	}
	n, err := l.b.admission.State(time.Now())
	if err != nil || len(n.Pods) != 1 || n.Pods[0].Requests["memory"] != 900<<20 || n.Pods[0].Surely != nil {
		t.Errorf("%+v, %v", n.Pods, err)
	}
}

// What root has put stays root's, whatever a member puts; what root puts in a member's place is root's from then on.
func TestWhoseObjectItIs(t *testing.T) {
	l := fullLoop(t, "", nil)
	pod := func(name string) string {
		return `[{"metadata": {"uid": "u", "namespace": "default", "name": "` + name + `"}, "spec": {"containers": [{"name": "c"}]}}]`
	}
	for _, c := range []struct {
		by     podstore.By
		name   string
		member bool
	}{
		{podstore.ByMember, "a", true}, {podstore.ByRoot, "a", false}, {podstore.ByMember, "a", false}, {podstore.ByMember, "b", false},
		{podstore.ByRoot, "b", false},
	} {
		if _, _, err := l.objects.Store().Put(strings.NewReader(pod(c.name)), false, c.by); err != nil {
			t.Fatal(err)
		}
		if got := l.objects.Store().Snapshot().Members["u"]; got != c.member {
			t.Errorf("%+v: a member's %v", c, got)
		}
	}
}
