package admission

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/cockroachdb/datadriven"

	"jettison/admit"
)

// do runs one line of a script with its input.
func (s *script) do(line, input string) string {
	s.t.Helper()
	d := &datadriven.TestData{Input: input}
	for i, word := range strings.Fields(line) {
		key, value, has := strings.Cut(word, "=")
		if i == 0 {
			d.Cmd = key
			continue
		}
		arg := datadriven.CmdArg{Key: key}
		if has {
			arg.Vals = []string{value}
		}
		d.CmdArgs = append(d.CmdArgs, arg)
	}
	out, err := s.run(d)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// plan returns the victims of a critical pod with a memory request, and the dying pods that it
// waits for.
func (s *script) plan(memory string) (victims, awaited string) {
	s.t.Helper()
	n, err := s.a.State(s.now)
	if err != nil {
		s.t.Fatal(err)
	}
	pod := critical("critical")
	pod.Pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}}}}
	names := func(all []admit.Held) string {
		var out []string
		for i := range all {
			out = append(out, all[i].Name)
		}
		return strings.Join(out, " ")
	}
	plan, _ := admit.Preempt(pod, n)
	return names(plan.Victims), names(plan.Awaited)
}

const oneContainer = `"spec":{"priority":0,"containers":[{"name":"c"}]}}`

// A pod of unknown class is no victim, and a member's object does not change that.
func TestMemberObjectGivesNoClass(t *testing.T) {
	for _, by := range []string{"", "objects", "objects member"} {
		s := &script{t: t}
		s.do("node", "memory 4Gi\npods 2")
		s.do("runtime", "default/mine bu\ndefault/neighbour ?")
		if by != "" {
			s.do(by, `{"metadata":{"uid":"neighbour","namespace":"default","name":"neighbour"},`+oneContainer)
		}
		want := map[bool]string{true: "neighbour", false: "mine"}[by == "objects"]
		if got, _ := s.plan("0"); got != want {
			t.Errorf("%q: victim %q, want %q", by, got, want)
		}
	}
}

// What a dying pod will free is waited for, regardless of the source of its requests: doubting them
// would cost another pod.
func TestMemberObjectIsAwaited(t *testing.T) {
	for _, by := range []string{"objects", "objects member"} {
		s := &script{t: t}
		s.do("node", "memory 4Gi\npods 20")
		s.do("runtime", "default/dying bu\ndefault/other gu memory=1Gi")
		s.do(by, `{"metadata":{"uid":"dying","namespace":"default","name":"dying"},"spec":{"priority":0,"containers":[{"name":"c","resources":{"requests":{"memory":"3Gi"}}}]}}`)
		s.do("kills ending=dying", "")
		if victims, awaited := s.plan("1Gi"); victims != "" || awaited != "dying" {
			t.Errorf("%s: victims %q, awaited %q, want none and dying", by, victims, awaited)
		}
	}
}

// Requests of root's objects are not reduced, even where the runtime's data covers only one
// container: a kubelet adds up the limits that are set.
func TestRootObjectIsNotReduced(t *testing.T) {
	s := &script{t: t}
	s.do("node", "memory 4Gi\npods 10")
	s.do("objects", `{"metadata":{"uid":"a","namespace":"default","name":"a"},"spec":{"containers":[{"name":"c","resources":{"limits":{"memory":"64Mi"}}},{"name":"big","resources":{"requests":{"memory":"100Gi"}}}]}}`)
	if got := s.do("refuse", "default/a bu memory=64Mi"); !strings.Contains(got, "OutOfmemory") {
		t.Errorf("answer for root's object = %q, want OutOfmemory", got)
	}
	s.do("runtime", "default/a bu memory=64Mi")
	if got := s.do("state", ""); !strings.Contains(got, "memory=107441291264") {
		t.Errorf("state = %q, want the memory request of root's object", got)
	}
}

// No pod is stopped for a pod that would still be rejected by the requests that a member gives.
func TestNoPreemptionWithoutEffect(t *testing.T) {
	for memory, want := range map[string]bool{"64Gi": false, "1Mi": true} {
		s := &script{t: t}
		s.do("node", "cpu 4\nmemory 4Gi\npods 20")
		s.do("runtime", "default/other gu cpu=3 memory=1Gi")
		s.do("objects member", `{"metadata":{"uid":"dns","namespace":"kube-system","name":"dns"},"spec":{"priority":2000000000,"containers":[{"name":"c","resources":{"requests":{"cpu":"2","memory":"`+memory+`"}}}]}}`)
		sandbox, _, err := parseSandbox("kube-system/dns bu cpu=2")
		if err != nil {
			t.Fatal(err)
		}
		sandbox.Annotations["jettison/priority"] = "2000000000"
		asked := &preemptRecorder{}
		var by Preemptor = asked
		s.a.preemptor.Store(&by)
		s.a.Reject(s.now, sandbox, "")
		if asked.asked != want {
			t.Errorf("memory request %s: preemption requested: %v, want %v", memory, asked.asked, want)
		}
	}
}

// preemptRecorder records a request for preemption, and starts none.
type preemptRecorder struct {
	Preemptor
	asked bool
}

func (w *preemptRecorder) RequestPreemption(admit.PodAttributes) string { w.asked = true; return "" }

// The pod with a manifest's own UID is the static pod, even if another pod has its name.
func TestStaticPodByUID(t *testing.T) {
	s := &script{t: t}
	s.do("node", "pods 10")
	s.do("manifests", `{"apiVersion":"v1","kind":"Pod","metadata":{"uid":"m","namespace":"default","name":"web"},"spec":{"containers":[{"name":"c"}]}}`+"\n")
	s.do("conditions MemoryPressure", "")
	s.do("runtime", "default/web be uid=x")
	if got := s.do("refuse", "default/web be uid=m"); got != "web is let in\n" && got != "m is let in\n" {
		t.Errorf("answer = %q, want the static pod admitted", got)
	}
}

// A running pod holds what the kubelet allocated, also if the runtime still shows the request from
// before a resize, and the spec asks for more. A member cannot state an allocation (podstore).
func TestHeldPodHasItsAllocation(t *testing.T) {
	for allocated, want := range map[string]string{"32Mi": "memory=33554432", "2Gi": "memory=2147483648"} {
		s := &script{t: t}
		s.do("node", "memory 4Gi\npods 10")
		s.do("runtime", "default/a gu memory=64Mi")
		s.do("objects", `{"metadata":{"uid":"a","namespace":"default","name":"a"},"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"1Ti"},"limits":{"memory":"1Ti"}}}]},`+
			`"status":{"containerStatuses":[{"name":"c","allocatedResources":{"memory":"`+allocated+`"},"resources":{"requests":{"memory":"64Mi"},"limits":{"memory":"64Mi"}}}]}}`)
		if got := s.do("state", ""); !strings.Contains(got, want+"\n") {
			t.Errorf("state with %s allocated = %q, want %s", allocated, got, want)
		}
	}
}

// The bounds of a starting pod replace what the kubelet allocated to it before.
func TestBoundsOfAStartingPodReplaceItsAllocation(t *testing.T) {
	s := &script{t: t}
	s.do("node", "memory 4Gi\npods 10")
	s.do("objects", `{"metadata":{"uid":"a","namespace":"default","name":"a"},"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"1Ti"},"limits":{"memory":"1Ti"}}}]},`+
		`"status":{"allocatedResources":{"memory":"1Gi"},"containerStatuses":[{"name":"c","allocatedResources":{"memory":"1Gi"},"resources":{}}]}}`)
	for sandbox, rejected := range map[string]bool{"default/a gu memory=1Gi": false, "default/a gu memory=5Gi": true} {
		if got := s.do("refuse", sandbox); strings.Contains(got, "OutOfmemory") != rejected {
			t.Errorf("answer for %s = %q, want rejected: %v", sandbox, got, rejected)
		}
	}
}
