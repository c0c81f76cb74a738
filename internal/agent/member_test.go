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

// provide lets a client provide pods, and the loop process them.
func (l *testLoop) provide(t *testing.T, by podstore.Role, pods string) {
	t.Helper()
	if _, _, err := l.objects.Store().Put(strings.NewReader(pods), false, by); err != nil {
		t.Fatal(err)
	}
	<-l.objects.Changed()
	l.onObjects()
	l.admission(time.Now())
}

// critical returns a pod of system priority.
func critical(uid string) admit.PodAttributes {
	priority, pod := int32(2_000_000_000), &v1.Pod{}
	pod.UID, pod.Name, pod.Namespace, pod.Spec.Priority = types.UID(uid), uid, "kube-system", &priority
	return admit.PodAttributes{Pod: pod}
}

// Only root's objects can make a pod critical for preemption: a member of the socket's group may
// provide objects, but cannot have pods stopped.
func TestAMembersObjectPreemptsNobody(t *testing.T) {
	for by, wants := range map[podstore.Role]int{podstore.ByMember: 0, podstore.ByRoot: 1} {
		l := fullLoop(t, "", nil)
		l.provide(t, by, `[{"metadata": {"uid": "mine", "namespace": "tenant", "name": "mine"},
			"spec": {"priority": 2000000000, "containers": [{"name": "c"}]}}]`)
		why := l.b.admission.Reject(time.Now(), &cri.PodSandbox{
			ID: "s", UID: "mine", Namespace: "tenant", Name: "mine", CgroupParent: "/kubepods/besteffort/podmine",
		}, "")
		if !strings.Contains(why, "OutOfpods") || len(l.gate.preempting.Requests()) != wants {
			t.Errorf("by %v: refusal %q, %d requests for preemption, want %d", by, why, len(l.gate.preempting.Requests()), wants)
		}
	}
}

// A pod that is critical by the runtime preempts whatever a member provides, but requests no more
// than the runtime reports.
func TestAMembersObjectMakesNoPodLarger(t *testing.T) {
	l := fullLoop(t, "", nil)
	l.provide(t, podstore.ByMember, `[{"metadata": {"uid": "critical", "namespace": "kube-system", "name": "critical"},
		"spec": {"priority": 0, "containers": [{"name": "c", "resources": {"requests": {"memory": "900Mi"}}}]}}]`)
	if why := l.criticalRefusal("critical"); !strings.Contains(why, "OutOf") || len(l.gate.preempting.Requests()) != 1 {
		t.Fatalf("refusal %q, %d requests for preemption, want one", why, len(l.gate.preempting.Requests()))
	}
	l.handleRequest(t.Context())
	if kept := l.gate.preempting.Reservations(time.Now()); len(kept) != 1 || kept[0].Requests["memory"] != 0 || !kept[0].Critical() {
		t.Errorf("reservations = %+v, want one without a memory request", kept)
	}
}

// A member's requests for another pod do not make it the nearest victim, nor does the member's
// priority remove a protection.
func TestAMembersObjectMakesNoVictim(t *testing.T) {
	for by, frees := range map[podstore.Role]bool{podstore.ByMember: false, podstore.ByRoot: true} {
		l := fullLoop(t, "", nil)
		l.o.Config.MaxPods = 10
		if err := l.objects.Store().Delete(nodetest.UID, podstore.ByRoot); err != nil {
			t.Fatal(err)
		}
		l.provide(t, by, `[{"metadata": {"uid": "`+nodetest.UID+`", "namespace": "default", "name": "pod"},
			"spec": {"priority": 0, "containers": [{"name": "c", "resources": {"requests": {"memory": "900Mi"}}}]}}]`)
		n, err := l.b.admission.State(time.Now())
		if err != nil || len(n.Pods) != 1 || n.Pods[0].Requests["memory"] != 900<<20 {
			t.Fatalf("pods of the node = %+v, %v, want one with 900Mi", n.Pods, err)
		}
		asks := critical("asks")
		asks.Pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("800Mi")},
		}}}
		plan, result := admit.Preempt(asks, n)
		if got := len(plan.Victims) == 1; got != frees || result.Admit {
			t.Errorf("by %v: plan %+v, result %+v, want a victim: %v", by, plan, result, frees)
		}
	}
	l := fullLoop(t, "", nil)
	l.o.Config.MaxPods = 10
	l.addCritical(t, "guard")
	l.provide(t, podstore.ByMember, `[{"metadata": {"uid": "guard", "namespace": "kube-system", "name": "guard"},
		"spec": {"priority": 0, "containers": [{"name": "c"}]}}]`)
	n, err := l.b.admission.State(time.Now())
	if err != nil || len(n.Pods) != 2 {
		t.Fatalf("pods of the node = %+v, %v, want two", n.Pods, err)
	}
	for _, h := range n.Pods {
		if h.UID == "guard" && !h.Critical() {
			t.Errorf("a critical pod is not protected: %+v", h)
		}
	}
}

// A member cannot replace root's object: the amount that the pod frees stays root's, so that no
// other pod is stopped.
func TestAMembersObjectReplacesNoneOfRoot(t *testing.T) {
	l := fullLoop(t, "", nil)
	l.o.Config.MaxPods = 10
	for _, c := range []struct {
		by     podstore.Role
		memory string
	}{{podstore.ByRoot, "900Mi"}, {podstore.ByMember, "1Mi"}} {
		l.provide(t, c.by, `[{"metadata": {"uid": "`+nodetest.UID+`", "namespace": "default", "name": "pod"},
			"spec": {"priority": 0, "containers": [{"name": "c", "resources": {"requests": {"memory": "`+c.memory+`"}}}]}}]`)
	}
	n, err := l.b.admission.State(time.Now())
	if err != nil || len(n.Pods) != 1 || n.Pods[0].Requests["memory"] != 900<<20 || n.Pods[0].CertainRequests != nil {
		t.Errorf("pods of the node = %+v, %v, want one with 900Mi", n.Pods, err)
	}
}

// Root's objects stay root's whatever a member provides; an object from root replaces a member's.
func TestOwnersOfObjects(t *testing.T) {
	l := fullLoop(t, "", nil)
	pod := func(name string) string {
		return `[{"metadata": {"uid": "u", "namespace": "default", "name": "` + name + `"}, "spec": {"containers": [{"name": "c"}]}}]`
	}
	for _, c := range []struct {
		by     podstore.Role
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
			t.Errorf("after %+v: object of a member %v, want %v", c, got, c.member)
		}
	}
}
