package nodepods

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/api"
	"jettison/internal/base/podjson"
	"jettison/internal/bridge/verdict"
)

// The copy keeps the transition time of conditions: a pod that was not ready keeps it when it
// fails.
func TestTransitionTimeIsKept(t *testing.T) {
	now := time.Date(2026, 7, 20, 2, 0, 0, 0, time.UTC)
	since := metav1.NewTime(now.Add(-time.Hour))
	p := pod("u")
	for _, kind := range []v1.PodConditionType{v1.PodReady, v1.ContainersReady} {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{
			Type: kind, Status: v1.ConditionFalse, Reason: "ContainersNotReady", Message: "m", LastTransitionTime: since,
		})
	}
	patch := string(verdict.Patch(now, verdict.Fail, &api.Record{ID: "r"}, Reduce(p)))
	if want := `"lastTransitionTime":"` + since.UTC().Format(time.RFC3339) + `"`; strings.Count(patch, want) != 2 {
		t.Errorf("patch %s\nwant %s in it", patch, want)
	}
}

// The copy, and the list that is gathered for it, are bounded for any number of pods and labels,
// including ended pods. Pods of other authors are kept in full.
func TestCopyIsBounded(t *testing.T) {
	many := func(n, labels int, phase v1.PodPhase) (all []any) {
		for i := range n {
			p := pod(fmt.Sprint("u", i))
			p.Status.Phase = phase
			p.Labels = map[string]string{}
			for l := range labels {
				p.Labels[fmt.Sprint("l", l)] = fmt.Sprint(i, strings.Repeat("x", 50))
			}
			for c := range labels {
				p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{Name: fmt.Sprint("c", c)})
			}
			all = append(all, p)
		}
		return all
	}
	for name, c := range map[string]struct {
		pods []any
		most int // MiB
	}{
		"large ones": {many(200, 900, v1.PodRunning), 13}, "large ones that have ended": {many(200, 900, v1.PodFailed), 13},
		"many that have ended": {many(12500, 3, v1.PodSucceeded), 16}, "of many containers": {many(150, 1300, v1.PodRunning), 16},
	} {
		other := pod("other")
		other.Labels = map[string]string{"a": "b"}
		for how, do := range map[string]func(s *store){
			"one by one": func(s *store) {
				must(t, s.Replace([]any{other}, "1"))
				for _, p := range c.pods {
					must(t, s.Add(p))
				}
			},
			"all at once": func(s *store) { must(t, s.Replace(append(slices.Clone(c.pods), other), "1")) },
			"as a watch": func(s *store) {
				cut := s.Transformer()
				var all []any
				for _, p := range append(slices.Clone(c.pods), other) {
					p, err := cut(p)
					must(t, err)
					all = append(all, p)
				}
				if size := heldBy(all); size > 48<<20 {
					t.Errorf("%s: %d MiB gathered, want less", name, size>>20)
				}
				must(t, s.Replace(all, "1"))
			},
		} {
			s := newStore(nil)
			do(s)
			var all []any
			for _, p := range s.pods {
				all = append(all, p.pod)
			}
			for _, p := range s.dirty {
				if is := s.get(p.Namespace, p.Name); is != p {
					all = append(all, p)
				}
			}
			if size := heldBy(all); size > c.most<<20 || s.bytes > maxBytes || len(s.pods) > maxPods {
				t.Errorf("%s, %s: %d pods of %d MiB kept, %d bytes counted, want less and an exact count", name, how, len(s.pods), size>>20, s.bytes)
			}
			if p := s.get(other.Namespace, other.Name); p == nil || p.Labels["a"] != "b" {
				t.Errorf("%s, %s: pod of another author is %+v, want it in full", name, how, p)
			}
		}
	}
}

// heldBy returns the memory that pods take.
func heldBy(all []any) (size int) {
	for _, p := range all {
		size += podjson.Size(p.(*v1.Pod))
	}
	return size
}

// Of many containers the one that started last and one that runs are kept.
func TestContainersThatAreKept(t *testing.T) {
	at := func(minute int) metav1.Time { return metav1.NewTime(time.Date(2026, 7, 20, 2, minute, 0, 0, time.UTC)) }
	running := func(minute int) v1.ContainerState {
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at(minute)}}
	}
	p := pod("u")
	p.Status.ContainerStatuses = []v1.ContainerStatus{
		{Name: "waits"}, {Name: "a", State: running(1)},
		{Name: "b", LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{StartedAt: at(3)}}}, {Name: "c", State: running(2)},
	}
	if is := Reduce(p).Status.ContainerStatuses; len(is) != 2 || is[1].Name != "b" || !is[1].LastTerminationState.Terminated.StartedAt.Equal(new(at(3))) {
		t.Errorf("container statuses %+v, want the two that matter", is)
	}
}

// The verdict on how a pod's containers ended is the same for the reduced pod.
func TestContainerEndIsKept(t *testing.T) {
	ended := func(minute int, code int32) v1.ContainerStatus {
		return v1.ContainerStatus{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: code, StartedAt: metav1.NewTime(time.Date(2026, 7, 20, 2, minute, 0, 0, time.UTC)),
		}}}
	}
	for name, all := range map[string][]v1.ContainerStatus{
		"none": nil, "well": {ended(1, 0), ended(2, 0)}, "the newest badly": {ended(1, 0), ended(2, 137)}, "an older one badly": {ended(1, 137), ended(2, 0)},
		"one has not": {ended(1, 0), {}, ended(2, 137)}, "none has started": {{}, {}}, "the newest well": {ended(1, 137), {}, ended(2, 0), ended(1, 1)},
	} {
		worst := func(all []v1.ContainerStatus) (end verdict.ContainerEnd) {
			for i := range all {
				end = max(end, verdict.EndOf(&all[i]))
			}
			return end
		}
		p := pod("u")
		p.Status.ContainerStatuses = all
		if is := Reduce(p).Status.ContainerStatuses; worst(is) != worst(all) || len(is) > 2 {
			t.Errorf("%s: kept statuses %+v, want the same verdict", name, is)
		}
	}
}

// The minimum of a pod keeps what its verdict needs, whatever else its author added.
func TestMinimumKeepsTheRecord(t *testing.T) {
	p := pod("u")
	p.Annotations = map[string]string{api.AnnotationEvicted: "r#1", v1.MirrorPodAnnotationKey: "m"}
	for i := range 8 {
		p.Annotations[fmt.Sprint("jettison/a", i)] = "x"
	}
	for i := range 2000 {
		metav1.SetMetaDataLabel(&p.ObjectMeta, fmt.Sprint("l", i), strings.Repeat("x", 60))
	}
	is := Reduce(p)
	if is.Labels != nil || is.Annotations[api.AnnotationEvicted] != "r#1" || is.Annotations[v1.MirrorPodAnnotationKey] != "m" {
		t.Errorf("%d labels and annotations %q, want no label and the record's ID", len(is.Labels), is.Annotations)
	}
}

// A reduced pod keeps what its sandbox holds. The agent gets no resource claims.
func TestSandboxResourcesAreKept(t *testing.T) {
	p := pod("u")
	gpu := v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	p.Spec.Containers = []v1.Container{{Name: "c", Ports: []v1.ContainerPort{{HostPort: 80}}, Resources: v1.ResourceRequirements{Limits: gpu}}}
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "x", ResourceClaimName: new("y")}, {Name: "z"}}
	is := Reduce(p)
	c := is.Spec.Containers[0]
	if len(c.Ports) != 1 || c.Resources.Limits["example.com/gpu"] != gpu["example.com/gpu"] || len(is.Spec.ResourceClaims) != 1 || is.Spec.ResourceClaims[0].ResourceClaimName != nil {
		t.Errorf("kept spec %+v, want the sandbox's resources", is.Spec)
	}
	if told := agentPod(is); len(told.Spec.ResourceClaims) > 0 || len(is.Spec.ResourceClaims) != 1 {
		t.Errorf("sent spec %+v and kept spec %+v, want claims in the kept one only", told.Spec, is.Spec)
	}
	if again := Reduce(is); !sameAgentPod(is, again) || len(again.Spec.ResourceClaims) != 1 {
		t.Errorf("spec after a second reduction %+v, want it unchanged", again.Spec)
	}
}

// A container that never started has no allocation of its own. Its resize that the kubelet defers
// counts up to the pod's total, which the agent does not get.
func TestDeferredResizeBeforeTheFirstStart(t *testing.T) {
	p := pod("u")
	memory := func(text string) v1.ResourceList { return v1.ResourceList{v1.ResourceMemory: resource.MustParse(text)} }
	p.Spec.Containers = []v1.Container{{Name: "a", Resources: v1.ResourceRequirements{Requests: memory("100Mi")}}, {Name: "b", Resources: v1.ResourceRequirements{Requests: memory("6Gi")}}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "a", AllocatedResources: memory("100Mi")}, {Name: "b"}}
	p.Status.AllocatedResources = memory("200Mi")
	once := Reduce(p)
	for _, is := range []*v1.Pod{once, Reduce(once), agentPod(once)} {
		if q := is.Spec.Containers[1].Resources.Requests[v1.ResourceMemory]; q.String() != "100Mi" {
			t.Errorf("request of a container that never started = %s, want 100Mi, which the total leaves", q.String())
		}
	}
}

// The agent gets the requests that the kubelet allocated, and not those of a deferred resize. It
// gets no allocation, which it would not trust, and a list is reduced twice.
func TestRequestsAreTheAllocation(t *testing.T) {
	p := pod("u")
	memory := func(text string) v1.ResourceList { return v1.ResourceList{v1.ResourceMemory: resource.MustParse(text)} }
	p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: memory("1Ti")}}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", AllocatedResources: memory("100Mi"), Resources: &v1.ResourceRequirements{Requests: memory("100Mi")}}}
	p.Status.AllocatedResources, p.Status.Resources = memory("100Mi"), &v1.ResourceRequirements{Requests: memory("100Mi")}
	once := Reduce(p)
	for _, is := range []*v1.Pod{once, Reduce(once), agentPod(once)} {
		if q := is.Spec.Containers[0].Resources.Requests[v1.ResourceMemory]; q.String() != "100Mi" {
			t.Errorf("request of the reduced pod = %s, want the allocated 100Mi", q.String())
		}
		if s := is.Status; s.AllocatedResources != nil || s.Resources != nil {
			t.Errorf("status of the reduced pod = %+v, want no allocation", s)
		}
	}
	deferred := p.DeepCopy()
	deferred.Spec.Containers[0].Resources.Requests = memory("2Ti")
	if !sameAgentPod(once, Reduce(deferred)) {
		t.Error("a resize that the kubelet defers changes the pod for the agent, want it unchanged")
	}
	if q := p.Spec.Containers[0].Resources.Requests[v1.ResourceMemory]; q.String() != "1Ti" {
		t.Errorf("request of the API server's object = %s after Reduce, want 1Ti", q.String())
	}
}
