package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func podOf(change func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	change(p)
	return p
}

func tolerating(t ...v1.Toleration) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Tolerations = t }
}

func priority(v int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &v } }

func annotated(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations = map[string]string{key: value} }
}

func requesting(list v1.ResourceList) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests = list }
}

// D21 (kubelet TestAdmitUnderNodeConditions): the pods that each condition admits.
func TestUnderPressure(t *testing.T) {
	none := func(*v1.Pod) {}
	memory := v1.Toleration{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}
	one := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}
	for _, c := range []struct {
		name                           string
		pod                            func(*v1.Pod)
		underMemory, underAnythingMore bool
	}{
		{"BestEffort", none, false, false},
		{"BestEffort that tolerates memory pressure", tolerating(memory), true, false},
		{"BestEffort that tolerates everything", tolerating(v1.Toleration{Operator: v1.TolerationOpExists}), true, false},
		{"the taint as equal to nothing", tolerating(v1.Toleration{Key: v1.TaintNodeMemoryPressure}), true, false},
		{"the taint with a value", tolerating(v1.Toleration{Key: v1.TaintNodeMemoryPressure, Value: "x"}), false, false},
		{"another effect", tolerating(v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}), false, false},
		{"another taint", tolerating(v1.Toleration{Key: v1.TaintNodeDiskPressure, Operator: v1.TolerationOpExists}), false, false},
		{"an operator for numbers", tolerating(v1.Toleration{Key: v1.TaintNodeMemoryPressure, Operator: "Lt"}), false, false},
		{"Burstable", requesting(one), true, false},
		{"Burstable by its status", func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSBurstable }, true, false},
		{"Guaranteed", func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = one }, true, false},
		{"with resources of the whole pod", func(p *v1.Pod) { p.Spec.Resources = &v1.ResourceRequirements{Requests: one} }, true, false},
		{"with a whole pod's storage, which makes no class", func(p *v1.Pod) {
			p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Mi")}}
		}, false, false},
		{"BestEffort by its status", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = one
			p.Status.QOSClass = v1.PodQOSBestEffort
		}, false, false},
		{"requests 0", requesting(v1.ResourceList{v1.ResourceMemory: resource.Quantity{}}), false, false},
		{"an init container requests", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: one}}}
		}, true, false},
		{"critical", priority(2_000_000_000), true, true},
		{"nearly critical", priority(1_999_999_999), false, false},
		{"static", annotated("kubernetes.io/config.source", "file"), true, true},
		{"from the API", annotated("kubernetes.io/config.source", "api"), false, false},
		{"mirror", annotated("kubernetes.io/config.mirror", "x"), true, true},
	} {
		pod := podOf(c.pod)
		if got := UnderPressure(nil, pod); got != (Result{Admit: true}) {
			t.Errorf("decision on %s without pressure = %+v, want admitted", c.name, got)
		}
		for _, w := range []struct {
			conditions []string
			admit      bool
			message    string
		}{
			{[]string{"MemoryPressure"}, c.underMemory, "The node had condition: [MemoryPressure]. "},
			{[]string{"DiskPressure"}, c.underAnythingMore, "The node had condition: [DiskPressure]. "},
			{[]string{"PIDPressure"}, c.underAnythingMore, "The node had condition: [PIDPressure]. "},
			{[]string{"MemoryPressure", "DiskPressure"}, c.underAnythingMore, "The node had condition: [DiskPressure MemoryPressure]. "},
		} {
			want := Result{Admit: true}
			if !w.admit {
				want = Result{Reason: "Evicted", Message: w.message}
			}
			if got := UnderPressure(w.conditions, pod); got != want {
				t.Errorf("decision on %s under %v = %+v, want %+v", c.name, w.conditions, got, want)
			}
		}
	}
}
