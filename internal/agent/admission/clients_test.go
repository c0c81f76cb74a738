package admission

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/admit"
	"jettison/cri"
	"jettison/eviction"
	"jettison/internal/agent/objects/podstore"
	"jettison/stats"
	"jettison/stats/read"
)

// preemptor records the pods that request preemption.
type preemptor struct{ wanted []types.UID }

func (p *preemptor) OnAdmitted(admit.PodAttributes) {}
func (p *preemptor) RequestPreemption(pod admit.PodAttributes) string {
	p.wanted = append(p.wanted, pod.Pod.UID)
	return "; noted"
}
func (p *preemptor) Preempt(_ context.Context, pod admit.PodAttributes) (admit.Result, error) {
	p.wanted = append(p.wanted, pod.Pod.UID)
	return admit.Result{Admit: true}, nil
}

// The gate requests preemption only for pods that lack nothing but resources and have a known
// priority, and never next to a kubelet.
func TestPreemptionRequests(t *testing.T) {
	by := &preemptor{}
	a, part := gate(t, list("1", "1Gi", "10"), Options{Preemptor: by})
	now := time.Now()
	for _, kubelet := range []bool{true, false} {
		part.Publish(now, nil, kubelet)
		for _, line := range []string{
			"kube-system/unknown bu cpu=2", "kube-system/known bu cpu=2 jettison/priority=2000000000", "kube-system/low bu cpu=2 jettison/priority=1",
			"default/tenant bu cpu=2 jettison/priority=2000000000", "default/fits bu cpu=1m",
		} {
			before := len(by.wanted)
			if why := a.Reject(now, sandbox(t, "%s", line), ""); strings.HasSuffix(why, "; noted") != (len(by.wanted) > before) {
				t.Errorf("%s: refusal %q does not match the request for preemption", line, why)
			}
		}
	}
	part.Publish(now, []eviction.Condition{"DiskPressure"}, false)
	a.Reject(now, sandbox(t, "kube-system/pressed bu cpu=2 jettison/priority=1"), "")
	if want := []types.UID{"known", "low"}; !slices.Equal(by.wanted, want) {
		t.Errorf("pods that requested preemption = %v, want %v", by.wanted, want)
	}
	if r, err := a.Preempt(t.Context(), &v1.Pod{}); err != nil || !r.Admit {
		t.Errorf("Preempt = %+v, %v, want admitted", r, err)
	}
	without, _ := gate(t, nil, Options{})
	if _, err := without.Preempt(t.Context(), &v1.Pod{}); !errors.Is(err, ErrNoPreemption) {
		t.Errorf("Preempt without a Preemptor: error %v, want ErrNoPreemption", err)
	}
}

// A client's pod in its hold-off is rejected as the gate would do.
func TestHeldOffPodIsRejected(t *testing.T) {
	by := &preemptor{}
	heldOff := func(_ time.Time, p *v1.Pod) (string, bool) { return "it leaks", p.UID == "u" }
	a, part := gate(t, list("1", "1Gi", "10"), Options{HeldOff: heldOff, Preemptor: by})
	part.Publish(time.Now(), nil, false)
	for uid, want := range map[types.UID]admit.Result{"u": {Reason: "Evicted", Message: "it leaks"}, "other": {Admit: true}} {
		p := &v1.Pod{}
		p.UID = uid
		if got, err := a.Ask(t.Context(), p, podstore.ByRoot); err != nil || got != want {
			t.Errorf("Ask for pod %s = %+v, %v, want %+v", uid, got, err, want)
		}
		if got, err := a.Preempt(t.Context(), p); err != nil || got != want {
			t.Errorf("Preempt for pod %s = %+v, %v, want %+v", uid, got, err, want)
		}
	}
	if !slices.Equal(by.wanted, []types.UID{"other"}) {
		t.Errorf("pods passed to the Preemptor = %v, want [other]", by.wanted)
	}
}

// The phase of a pod elsewhere does not count: a running pod's AppArmor profile is checked as that
// of a starting one.
func TestPodRunningElsewhere(t *testing.T) {
	a, part := gate(t, list("1", "1Gi", "10"), Options{Node: Node{AppArmor: stats.Some(false)}})
	part.Publish(time.Now(), nil, false)
	p := &v1.Pod{}
	p.UID, p.Status.Phase = "u", v1.PodRunning
	p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}
	if got, err := a.Ask(t.Context(), p, podstore.ByRoot); err != nil || got.Reason != "AppArmor" || p.Status.Phase != v1.PodRunning {
		t.Errorf("decision = %+v, %v, want reason AppArmor and an unchanged object", got, err)
	}
}

// An object with the UID but not the name of a runtime's pod is ignored.
func TestAnotherPodsObject(t *testing.T) {
	a, part := gate(t, list("1", "1Gi", "10"), Options{})
	object := &v1.Pod{}
	object.UID, object.Namespace, object.Name = "p", "default", "other"
	object.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: list("500m", "1Mi", "1")}}}
	part.objects = map[string]*v1.Pod{"p": object}
	part.OnPods(read.NewIndex(cri.Listing{Sandboxes: []cri.PodSandbox{*sandbox(t, "default/p bu cpu=10m")}}))
	now := time.Now()
	part.Publish(now, nil, false)
	n, err := a.State(now)
	if err != nil || len(n.Pods) != 1 || n.Pods[0].Name != "p" || n.Pods[0].Requests[v1.ResourceCPU] != 10 {
		t.Errorf("pods of the node = %+v, %v, want p with 10 millicores", n.Pods, err)
	}
}

// An object without a source is a client's, and its mirror annotation does not count.
func TestClientObjectIsNoMirror(t *testing.T) {
	for key, want := range map[string]bool{annotationMirror: false, annotationSource: true} {
		p := admit.StoredObject(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: "file"}}})
		if held := admit.HeldBy(p); p.Manifest != want || held.Static != want {
			t.Errorf("annotation %s: manifest %v, static %v, want %v", key, p.Manifest, held.Static, want)
		}
	}
}

// A sum that overflows becomes the largest number: a wrapped sum would be no request.
func TestRequestDoesNotWrap(t *testing.T) {
	most, two := uint64(math.MaxUint64), uint64(2)
	got := minRequests(&cri.PodSandbox{MemoryLimit: &most, Overhead: &two}, stats.Guaranteed)
	if m := got[v1.ResourceMemory]; m.Value() != math.MaxInt64 {
		t.Errorf("memory request = %v, want the largest int64", m.String())
	}
}
