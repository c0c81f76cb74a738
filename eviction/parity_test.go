package eviction

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"

	"jettison/stats"
)

// amount draws amounts in formats that do not mix: the kubelet's sum has the format of its first
// part.
func amount(t *rapid.T, label string) (q resource.Quantity, given bool) {
	text := rapid.SampledFrom([]string{"", "0", "1", "1024", "1k", "300Mi", "1300Mi", "1.5Gi", "100m"}).Draw(t, label)
	if text == "" {
		return q, false
	}
	return resource.MustParse(text), true
}

// anyPod draws an object with every kind of container, overhead and, with podLevel, pod-level
// resources.
func anyPod(t *rapid.T, podLevel bool) *v1.Pod {
	p := &v1.Pod{}
	resources := func(label string) (r v1.ResourceRequirements) {
		r.Requests, r.Limits = v1.ResourceList{}, v1.ResourceList{}
		for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceEphemeralStorage} {
			if q, ok := amount(t, label+" request"); ok {
				r.Requests[name] = q
			}
			if q, ok := amount(t, label+" limit"); ok {
				r.Limits[name] = q
			}
		}
		return r
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Resources: resources("container")})
	}
	always := v1.ContainerRestartPolicyAlways
	for i := range rapid.IntRange(0, 4).Draw(t, "init containers") {
		c := v1.Container{Name: fmt.Sprint("i", i), Resources: resources("init container")}
		if rapid.Bool().Draw(t, "sidecar") {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if rapid.Bool().Draw(t, "has overhead") {
		p.Spec.Overhead = v1.ResourceList{}
		for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceEphemeralStorage} {
			if q, ok := amount(t, "overhead"); ok {
				p.Spec.Overhead[name] = q
			}
		}
	}
	if podLevel {
		r := resources("pod")
		delete(r.Requests, v1.ResourceEphemeralStorage)
		delete(r.Limits, v1.ResourceEphemeralStorage)
		p.Spec.Resources = &r
	}
	return p
}

// Requests and the total storage limit of any object equal those of the kubelet's library, also in
// their format: the message is compared word for word.
func TestRequestsAndLimitsAreTheKubelets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPod(t, rapid.Bool().Draw(t, "pod level"))
		want, found := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
		got := podStorageLimit(p)
		if found != (got != nil) || found && got.String() != want.String() {
			t.Fatalf("total storage limit %v, want %v (%v)", got, &want, found)
		}
		if p.Spec.Resources != nil {
			return // the ranking has another rule, see podRequest
		}
		requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{ExcludeOverhead: true})
		for _, name := range []v1.ResourceName{v1.ResourceMemory, v1.ResourceEphemeralStorage} {
			want := requests[name]
			if overhead, ok := p.Spec.Overhead[name]; ok && !want.IsZero() {
				want.Add(overhead)
			}
			if got := podRequest(p, name); got.Cmp(want) != 0 {
				t.Fatalf("request for %s %v, want %v", name, &got, &want)
			}
		}
	})
}

// The kubelet's own case: it adds the sidecars to an init container, not the other way round, so
// the sum has the init container's format.
func TestTheTotalStorageLimitIsWrittenAsTheKubeletWritesIt(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	with := func(limit string) v1.Container {
		return v1.Container{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(limit)}}}
	}
	sidecar := with("1300Mi")
	sidecar.RestartPolicy = &always
	p := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{sidecar, with("1024")}, Containers: []v1.Container{with("1")}}}
	if got := podStorageLimit(p).String(); got != "1363149824" {
		t.Errorf("storage limit = %s, want 1363149824", got)
	}
}

// The message of an eviction after a reclaim is from one look: the one by which the victim was
// chosen.
func TestAMessageAfterAReclaimIsOfOneLook(t *testing.T) {
	thresholds, _, _ := in("hard nodefs.available 1Gi").Parse()
	m := NewManager(Config{Thresholds: thresholds})
	object := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	object.Name, object.UID = "P", "P"
	look := func(available, layer string) Input {
		c := stats.ContainerStats{Name: "c", Rootfs: stats.Some(stats.FsUsage{UsedBytes: quantity(layer)}), Logs: stats.Some(stats.FsUsage{})}
		return Input{Pods: map[string]*Pod{"P": NewPod(object)}, Summary: &stats.Summary{
			Node: stats.NodeStats{Layout: stats.Some(stats.Layout{}), Fs: stats.Some(stats.FsStats{
				Time: epoch, AvailableBytes: stats.Some(quantity(available)), CapacityBytes: stats.Some(quantity("100Gi"))})},
			Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "P"}, Containers: []stats.ContainerStats{c}}},
		}}
	}
	m.config.Replay = true
	if d := m.Step(epoch, look("500Mi", "2Gi")); len(d.Reclaim) == 0 {
		t.Fatal("decision has nothing to reclaim, want containers and images")
	}
	d := m.StepAfterReclaim(epoch, look("700Mi", "1800Mi"))
	if len(d.Evictions) != 1 {
		t.Fatalf("%d evictions after the reclaim, want one: %s", len(d.Evictions), d.Reason)
	}
	for _, part := range []string{"available: 700Mi. ", "using 1800Mi"} {
		if got := d.Evictions[0].Message; !strings.Contains(got, part) {
			t.Errorf("message = %q, want %q in it", got, part)
		}
	}
	// the met threshold keeps its value from before the reclaim
	if got := d.Met[0].ObservedText(); got != "500Mi" {
		t.Errorf("observed value of the met threshold = %s, want 500Mi", got)
	}
}
