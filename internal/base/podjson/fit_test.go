package podjson

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func small(i int) *v1.Pod {
	priority, yes := int32(i), true
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID: types.UID(fmt.Sprint("u", i)), Namespace: "shop", Name: fmt.Sprint("p", i), Labels: map[string]string{"app": "a"},
			CreationTimestamp: metav1.NewTime(time.Unix(int64(1000+i), 0)),
			OwnerReferences:   []metav1.OwnerReference{{Kind: "Other", Name: "x"}, {Kind: "ReplicaSet", Name: "r", UID: "r", Controller: &yes}},
		},
		Spec:   v1.PodSpec{Priority: &priority, Containers: []v1.Container{{Name: "c"}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable},
	}
}

// large returns a pod with many labels, which an API server accepts in any number.
func large(i, labels int) *v1.Pod {
	p := small(i)
	for l := range labels {
		p.Labels[fmt.Sprintf("l%d", l)] = strings.Repeat("x", 60)
	}
	return p
}

// Any number of pods of any size fits, and ordinary ones are not reduced. Reduced ones keep
// identity and priority.
func TestFit(t *testing.T) {
	for name, c := range map[string]struct {
		pods func() []*v1.Pod
		want Reduction
		one  int // index of the checked pod
		cut  bool
	}{
		"one above the limit of one pod": {func() []*v1.Pod { return []*v1.Pod{small(0), large(1, 9000)} }, Reduction{}, 1, true},
		"an ordinary one next to it":     {func() []*v1.Pod { return []*v1.Pod{small(0), large(1, 9000)} }, Reduction{}, 0, false},
		"many large ones": {func() (all []*v1.Pod) {
			for i := range 100 {
				all = append(all, large(i, 800))
			}
			return append(all, small(100))
		}, Reduction{Minimal: 65}, 100, false},
		"more than the limit": {func() (all []*v1.Pod) {
			for i := range FitPods + 10 {
				all = append(all, small(i))
			}
			for i := range 4 {
				all[i+1].Status.Phase = v1.PodFailed
			}
			return all
		}, Reduction{Dropped: 10}, 0, false},
	} {
		all := c.pods()
		before := len(all[c.one].Labels)
		fit, did := Fit(all)
		memory := 0
		for _, p := range fit {
			memory += Size(p)
			if text, err := json.Marshal(p); err != nil || len(text) > MaxPod {
				t.Errorf("%s: JSON of %s has %d bytes, error %v; want at most MaxPod", name, p.Name, len(text), err)
			}
		}
		one := fit[min(c.one, len(fit)-1)]
		if len(fit) > FitPods || memory > FitMemory || len(fit)+did.Dropped != len(all) || did.Dropped != c.want.Dropped || (did.Minimal > 0) != (c.want.Minimal > 0) {
			t.Errorf("%s: %d pods of %d bytes, reductions %+v; want %+v", name, len(fit), memory, did, c.want)
		}
		if (len(one.Labels) != before) != c.cut || len(all[c.one].Labels) != before || *one.Spec.Priority != int32(c.one) ||
			metav1.GetControllerOf(one).Name != "r" || one.Status.QOSClass != v1.PodQOSBurstable || Named(one) != nil {
			t.Errorf("%s: checked pod = %+v, want reduced %v, with its identity and priority", name, one, c.cut)
		}
	}
}

// Ended pods are left out first, and then the youngest.
func TestPodsLeftOut(t *testing.T) {
	var all []*v1.Pod
	for i := range FitPods + 2 {
		all = append(all, small(i))
	}
	all[3].Status.Phase = v1.PodSucceeded
	fit, _ := Fit(all)
	for _, p := range fit {
		if p.Name == "p3" || p.Name == fmt.Sprint("p", FitPods+1) {
			t.Errorf("%s kept, want it left out", p.Name)
		}
	}
	if len(fit) != FitPods {
		t.Errorf("%d pods kept, want %d", len(fit), FitPods)
	}
}

// Minimal keeps the short annotations that affect a decision.
func TestLeastKeepsShortAnnotations(t *testing.T) {
	p := small(1)
	p.Annotations = map[string]string{
		"jettison/priority": "7", v1.MirrorPodAnnotationKey: "x", "other": "y", "jettison/long": strings.Repeat("z", leastAnnotation),
	}
	if got := Minimal(p).Annotations; len(got) != 2 || got["jettison/priority"] != "7" || got[v1.MirrorPodAnnotationKey] != "x" {
		t.Errorf("annotations of Least = %v, want priority and mirror", got)
	}
}
