package admit

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"jettison/stats"
)

// full returns a node with every fact known and 109 pods that leave few free resources.
func full() NodeState {
	allowed, err := NewSysctls(drawnSysctls)
	if err != nil {
		panic(err)
	}
	n := NodeState{
		Name: "machine1", Labels: Labels("machine1", "amd64", map[string]string{"zone": "a"}),
		Taints:     []v1.Taint{{Key: "a", Value: "b", Effect: v1.TaintEffectNoExecute}},
		Conditions: []string{"MemoryPressure"},
		Allocatable: v1.ResourceList{
			"cpu": resource.MustParse("11"), "memory": resource.MustParse("11Gi"), "ephemeral-storage": resource.MustParse("1Gi"),
			"pods": resource.MustParse("110"), "example.com/gpu": resource.MustParse("1"), "hugepages-2Mi": resource.MustParse("0"),
		},
		Sysctls: allowed, AppArmor: stats.Some(false), SupplementalGroups: stats.Some(false),
	}
	for i := range 109 {
		n.Pods = append(n.Pods, Held{
			UID: types.UID(fmt.Sprint(i)), Namespace: "ns", Name: fmt.Sprint("pod", i),
			QOS:      []stats.QOSClass{stats.BestEffort, stats.Burstable, stats.Guaranteed}[i%3],
			Requests: Amounts{"cpu": 100, "memory": int64(i) << 20, "ephemeral-storage": int64(i)},
			Ports:    []Port{newPort("0.0.0.0", v1.ProtocolTCP, int32(10000+i))},
		})
	}
	return n
}

// hugeExponent matches quantities that take minutes to parse. Decoders of pod objects reject them.
var hugeExponent = regexp.MustCompile(`[eE][+-]?\d{4,}`)

// Every pod object gets a consistent decision and plan. An additional pod on the node never makes
// another one fit.
func FuzzAdmit(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"metadata":{"uid":"3"},"spec":{"priority":2000000000,"containers":[{"resources":{"requests":{"cpu":"5","memory":"6Gi"}}}]}}`,
		`{"spec":{"resources":{"limits":{"memory":"1e400","hugepages-2Mi":"4Mi"}},"overhead":{"cpu":"-9E"},"initContainers":[{"restartPolicy":"Always"}]}}`,
		`{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"operator":"In"}]}]}}}}}`,
		`{"spec":{"securityContext":{"sysctls":[{"name":"/"}],"appArmorProfile":{"type":"Localhost"}},"ephemeralContainers":[{"name":"e"}]}}`,
		`{"status":{"qosClass":"?","resources":{"requests":{"cpu":"1"}},"containerStatuses":[{"name":"c","allocatedResources":{"cpu":"-1"}}]}}`,
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	n := full()
	f.Fuzz(func(t *testing.T, object []byte, manifest bool) {
		var pod v1.Pod
		if hugeExponent.Match(object) {
			return
		}
		if json.Unmarshal(object, &pod) != nil {
			return
		}
		p := PodAttributes{Pod: &pod, Manifest: manifest}
		found := Failures(p, n)
		for _, failure := range found {
			if failure.Reason == "" || failure.Message == "" {
				t.Errorf("failure without reason or message: %+v", failure)
			}
		}
		plan, r := Preempt(p, n)
		if first(found) != Admit(p, n) || plan.Empty() && r.Admit != (len(found) == 0) {
			t.Errorf("Failures() = %+v and Preempt() = %+v contradict each other", found, r)
		}
		for i := range plan.Victims {
			if plan.Victims[i].UID == pod.UID {
				t.Error("the plan contains the preemptor itself")
			}
		}
		h := HeldBy(p)
		for name, v := range h.Requests {
			if v < 0 {
				t.Errorf("requests of %s = %d, want at least 0", name, v)
			}
		}
		if !manifest && h.Static {
			t.Error("the object of a client is static, want it not to be")
		}
		crowded := n
		crowded.Pods = append(crowded.Pods[:len(crowded.Pods):len(crowded.Pods)], h)
		other := PodAttributes{Pod: &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"memory": resource.MustParse("8Gi")}}}}}}}
		if !Admit(other, n).Admit && Admit(other, crowded).Admit {
			t.Error("an additional pod on the node makes another pod fit")
		}
	})
}

// A missing pod is rejected.
func TestNoPod(t *testing.T) {
	if r := Admit(PodAttributes{}, NodeState{}); r.Admit || r.Message != "pod: missing" {
		t.Errorf("Admit() without a pod = %+v, want \"pod: missing\"", r)
	}
}

// BenchmarkAdmit measures decisions. The gate must answer a hook of the runtime within 1 ms.
func BenchmarkAdmit(b *testing.B) {
	n := full()
	n.Conditions = nil
	p := PodAttributes{Pod: &v1.Pod{Spec: v1.PodSpec{Containers: make([]v1.Container, 3), NodeSelector: map[string]string{"zone": "a"}}}}
	p.Pod.Spec.Containers[1].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse("50m"), "memory": resource.MustParse("64Mi")}
	p.Pod.Spec.Containers[2].Ports = []v1.ContainerPort{{HostPort: 80}}
	b.Run("admit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Admit(p, n)
		}
	})
	v := int32(systemCriticalPriority)
	p.Pod.Spec.Priority = &v
	p.Pod.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	p.Pod.Spec.Containers[1].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse("9"), "memory": resource.MustParse("9Gi")}
	b.Run("preempt", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if plan, r := Preempt(p, n); plan.Empty() {
				b.Fatal(r)
			}
		}
	})
}
