package eviction

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// container0 returns a container of an object with its memory request, "" for none.
func container0(name, request string) v1.Container {
	c := v1.Container{Name: name}
	if request != "" {
		c.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse(request)}
	}
	return c
}

func sidecar(name, request string) v1.Container {
	c, always := container0(name, request), v1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

// using returns a container's measurements.
func using(name, memory string) stats.ContainerStats {
	return stats.ContainerStats{Name: name, Memory: stats.ContainerMemoryStats{WorkingSetBytes: stats.Some(quantity(memory))}}
}

// E07 to E11, word for word: the containers that the message names, and the annotations of the
// event.
func TestEvictionMessages(t *testing.T) {
	low := "The node was low on resource: memory. Threshold quantity: 2Gi, available: 1500Mi. "
	for _, c := range []struct {
		id          string
		spec        v1.PodSpec
		stats       stats.PodStats
		message     string
		annotations map[string]string
	}{
		{"E07", v1.PodSpec{InitContainers: []v1.Container{container0("init1", "100Mi")}},
			stats.PodStats{Containers: []stats.ContainerStats{using("init1", "150Mi")}},
			low + "Container init1 was using 150Mi, request is 100Mi, has larger consumption of memory. ",
			map[string]string{"starved_resource": "memory", "offending_containers": "init1", "offending_containers_usage": "150Mi"}},
		{"E08", v1.PodSpec{InitContainers: []v1.Container{sidecar("r1", "200Mi"), sidecar("r2", "200Mi")}, Containers: []v1.Container{container0("reg", "200Mi")}},
			stats.PodStats{Containers: []stats.ContainerStats{using("r1", "250Mi"), using("r2", "150Mi"), using("reg", "200Mi")}},
			low + "Container r1 was using 250Mi, request is 200Mi, has larger consumption of memory. ",
			map[string]string{"starved_resource": "memory", "offending_containers": "r1", "offending_containers_usage": "250Mi"}},
		{"E09", v1.PodSpec{Containers: []v1.Container{container0("reg", "200Mi")}, EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}}}},
			stats.PodStats{Containers: []stats.ContainerStats{using("e", "250Mi"), using("reg", "200Mi")}},
			low, map[string]string{"starved_resource": "memory", "offending_containers": "", "offending_containers_usage": ""}},
		{"E10", v1.PodSpec{InitContainers: []v1.Container{sidecar("r1", ""), sidecar("r2", "300Mi")}, Containers: []v1.Container{container0("regular1", "")}},
			stats.PodStats{Containers: []stats.ContainerStats{using("r1", "250Mi"), using("r2", "250Mi"), using("regular1", "200Mi")}},
			low + "Container r1 was using 250Mi, request is 0, has larger consumption of memory. Container regular1 was using 200Mi, request is 0, has larger consumption of memory. ",
			map[string]string{"starved_resource": "memory", "offending_containers": "r1,regular1", "offending_containers_usage": "250Mi,200Mi"}},
		{"E11", v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("250Mi")}}, Containers: []v1.Container{container0("c1", "400Mi"), container0("c2", "")}},
			stats.PodStats{Memory: stats.PodMemoryStats{WorkingSetBytes: stats.Some(quantity("600Mi"))}, Containers: []stats.ContainerStats{using("c1", "250Mi"), using("c2", "350Mi")}},
			low + "Pod P was using 600Mi, request is 250Mi, has larger consumption of memory. Container c2 was using 350Mi, request is 0, has larger consumption of memory. ",
			map[string]string{"starved_resource": "memory", "offending_pod": "P", "offending_pod_usage": "600Mi", "offending_containers": "c2", "offending_containers_usage": "350Mi"}},
		{"resize deferred", v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Ti")}}, Containers: []v1.Container{container0("c1", "1Ti")}},
			stats.PodStats{Memory: stats.PodMemoryStats{WorkingSetBytes: stats.Some(quantity("600Mi"))}, Containers: []stats.ContainerStats{using("c1", "500Mi")}},
			low + "Pod P was using 600Mi, request is 250Mi, has larger consumption of memory. Container c1 was using 500Mi, request is 100Mi, has larger consumption of memory. ",
			map[string]string{"starved_resource": "memory", "offending_pod": "P", "offending_pod_usage": "600Mi", "offending_containers": "c1", "offending_containers_usage": "500Mi"}},
	} {
		object := &v1.Pod{Spec: c.spec}
		object.Name, object.UID = "P", "P"
		if c.id == "resize deferred" {
			object.Status.AllocatedResources = v1.ResourceList{v1.ResourceMemory: resource.MustParse("250Mi")}
			object.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c1", AllocatedResources: v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi")}}}
		}
		c.stats.PodRef.UID, c.stats.Annotations = "P", map[string]string{}
		thresholds, _, _ := in("hard memory.available 2Gi").Parse()
		m := NewManager(Config{Thresholds: thresholds, MemoryAvailable: stats.MemoryAvailableWorkingSet})
		d := m.Step(epoch, Input{Pods: map[string]*Pod{"P": NewPod(object)}, Summary: &stats.Summary{
			Node: stats.NodeStats{Memory: stats.NodeMemoryStats{CapacityBytes: stats.Some(quantity("8Gi")), WorkingSetBytes: stats.Some(quantity("8Gi") - quantity("1500Mi"))}},
			Pods: []stats.PodStats{c.stats},
		}})
		if len(d.Evictions) != 1 {
			t.Errorf("%s: %d evictions, want one: %s", c.id, len(d.Evictions), d.Reason)
			continue
		}
		e := d.Evictions[0]
		if e.Message != c.message || !maps.Equal(e.Annotations, c.annotations) || e.Reason != "Evicted" || !e.Disruption {
			t.Errorf("%s: message %q, annotations %q, want %q, %q", c.id, e.Message, e.Annotations, c.message, c.annotations)
		}
	}
	if ReasonEvicted+ConditionDisruption+DisruptionReason+EventThresholdMet != "EvictedDisruptionTargetTerminationByKubeletEvictionThresholdMet" {
		t.Error("a reason or condition differs from the kubelet's name")
	}
}

// A pod-level request is for memory: it has no effect on disk messages.
func TestAPodLevelRequestIsForMemory(t *testing.T) {
	object := NewPod(&v1.Pod{Spec: v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: parsed("1Mi")}}}})
	pod := &stats.PodStats{Memory: stats.PodMemoryStats{WorkingSetBytes: stats.Some(uint64(2 << 20))}}
	for signal, want := range map[stats.Signal]bool{stats.SignalMemoryAvailable: true, stats.SignalNodeFsAvailable: false} {
		q := parsed("1Gi")
		text, annotations := message(&Met{Threshold: Threshold{Signal: signal, Value: ThresholdValue{Quantity: &q}}}, &Candidate{Pod: pod, Object: object})
		if _, named := annotations[annotationPod]; named != want || strings.Contains(text, "was using") != want {
			t.Errorf("%s: message %q, annotations %v, want the pod named: %v", signal, text, annotations, want)
		}
	}
}

// A pod that was never seen on the node has no figures, so its event has no annotations. A pod
// without an object has those that need none.
func TestAnnotationsWithoutFigures(t *testing.T) {
	for name, in := range map[string]Input{
		"map[]":                        {Pods: map[string]*Pod{"P": NewPod(&v1.Pod{})}, Summary: &stats.Summary{}, Foreign: true},
		"map[starved_resource:memory]": {Summary: &stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "P"}}}}},
	} {
		in.Summary.Node.Memory = stats.NodeMemoryStats{CapacityBytes: stats.Some(uint64(16 << 30)), KernelAvailableBytes: stats.Some(uint64(1))}
		d := managerOf(t, 0, hardLines...).Step(epoch, in)
		if len(d.Evictions) != 1 || fmt.Sprint(d.Evictions[0].Annotations) != name {
			t.Errorf("evictions = %+v, want one with annotations %s: %s", d.Evictions, name, d.Reason)
		}
	}
}

// The node event of each signal names its resource (pkg/kubelet/eviction/helpers.go
// signalToResource); the last ones are this project's own.
func TestAttemptingNamesTheResource(t *testing.T) {
	for resource, signals := range map[string][]stats.Signal{
		"memory":            {stats.SignalMemoryAvailable, stats.SignalAllocatableMemoryAvailable, stats.SignalMemoryPressureFull, stats.SignalMemoryPressureSome},
		"ephemeral-storage": {stats.SignalNodeFsAvailable, stats.SignalImageFsAvailable, stats.SignalContainerFsAvailable},
		"inodes":            {stats.SignalNodeFsInodesFree, stats.SignalImageFsInodesFree, stats.SignalContainerFsInodesFree},
		"pids":              {stats.SignalPIDAvailable},
		"swap":              {stats.SignalSwapAvailable}, "io": {stats.SignalIOPressureFull}, "cpu": {stats.SignalCPUPressureSome},
	} {
		for _, signal := range signals {
			if got := (Met{Threshold: Threshold{Signal: signal}}).AttemptingToReclaim(); got != "Attempting to reclaim "+resource {
				t.Errorf("AttemptingToReclaim of %s = %q, want resource %s", signal, got, resource)
			}
		}
	}
}

// Requests are added up like the kubelet's: init containers and sidecars, overhead, and pod-level
// resources, which do not contain ephemeral storage (weakness 26).
func TestRequestsOfObjects(t *testing.T) {
	both := func(name, memory, storage string) v1.Container {
		c := container0(name, memory)
		if storage != "" {
			if c.Resources.Requests == nil {
				c.Resources.Requests = v1.ResourceList{}
			}
			c.Resources.Requests[v1.ResourceEphemeralStorage] = resource.MustParse(storage)
		}
		return c
	}
	overhead := v1.ResourceList{v1.ResourceMemory: resource.MustParse("10Mi"), v1.ResourceEphemeralStorage: resource.MustParse("10Mi")}
	podLevel := &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("70Mi")}}
	for _, c := range []struct {
		name            string
		spec            v1.PodSpec
		memory, storage string
		qos             stats.QOSClass
	}{
		{"nothing", v1.PodSpec{Containers: []v1.Container{both("c", "", "")}}, "0", "0", stats.BestEffort},
		{"overhead on nothing is nothing", v1.PodSpec{Overhead: overhead, Containers: []v1.Container{both("c", "", "")}}, "0", "0", stats.BestEffort},
		{"the sum", v1.PodSpec{Overhead: overhead, Containers: []v1.Container{both("a", "1Mi", "5Mi"), both("b", "2Mi", "")}}, "13Mi", "15Mi", stats.Burstable},
		{"a large init container", v1.PodSpec{InitContainers: []v1.Container{both("i", "50Mi", "")}, Containers: []v1.Container{both("a", "1Mi", "5Mi")}}, "50Mi", "5Mi", stats.Burstable},
		{"sidecars before it", v1.PodSpec{InitContainers: []v1.Container{sidecar("s", "20Mi"), both("i", "50Mi", ""), sidecar("t", "5Mi")}, Containers: []v1.Container{both("a", "40Mi", "")}}, "70Mi", "0", stats.Burstable},
		{"sidecars with the containers", v1.PodSpec{InitContainers: []v1.Container{sidecar("s", "20Mi"), both("i", "50Mi", ""), sidecar("t", "5Mi")}, Containers: []v1.Container{both("a", "60Mi", "")}}, "85Mi", "0", stats.Burstable},
		{"pod level", v1.PodSpec{Resources: podLevel, Overhead: overhead, Containers: []v1.Container{both("a", "1Mi", "5Mi")}}, "80Mi", "15Mi", stats.Burstable},
	} {
		p := NewPod(&v1.Pod{Spec: c.spec})
		if p.memoryRequest != quantity(c.memory) || p.storageRequest != quantity(c.storage) || p.qos != c.qos {
			t.Errorf("%s: requests %d, %d, class %s, want %s, %s, %s", c.name, p.memoryRequest, p.storageRequest, p.qos, c.memory, c.storage, c.qos)
		}
	}
	limits := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi"), v1.ResourceCPU: resource.MustParse("1")}
	if got := NewPod(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: limits}}}}}).qos; got != stats.Guaranteed {
		t.Errorf("QoS class of limits without requests = %s, want Guaranteed", got)
	}
}

// The sum of the existing limits bounds the pod as a whole (facts section 5), and 0 is a limit of
// the pod but of no container.
func TestStorageLimitsOfObjects(t *testing.T) {
	limited := func(limit string) v1.Container {
		return v1.Container{Name: limit, Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(limit)}}}
	}
	p := NewPod(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{limited("1Gi"), limited("2Gi"), container0("free", ""), limited("0")}, InitContainers: []v1.Container{limited("1Mi")}}})
	if p.storageLimit.String() != "3Gi" || !p.containers[0].storageLimit.OK || p.containers[2].storageLimit.OK || p.containers[3].storageLimit.OK || p.containers[4].storageLimit.OK {
		t.Errorf("storage limit %v of containers %+v, want 3Gi", p.storageLimit, p.containers)
	}
	none := resource.MustParse("0")
	if p := NewPod(&v1.Pod{Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &none}}}}}}); p.Limited() {
		t.Error("Limited with a size limit of 0 = true, want false")
	}
	if NewPod(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container0("free", "1Mi")}}}).storageLimit != nil {
		t.Error("storage limit without any container's limit, want none")
	}
}

// A decision contains the ranking and its reasons, in words and as data.
func TestDecisionsExplainThemselves(t *testing.T) {
	c := pod("a", 3, "100Mi", "200Mi")
	c.Keys.SetAside, c.Keys.Request.V.Min, c.Pod.Announced = true, 0, false
	if got, want := c.Explain(), "set aside: survived its kill, uses 200Mi, over its request of at most 100Mi, priority 3, not announced by the runtime"; got != want {
		t.Errorf("Explain = %q, want %q", got, want)
	}
	if c = pod("a", 0, "1Gi", "-"); !strings.HasPrefix(c.Explain(), "not measured") {
		t.Errorf("Explain = %q, want \"not measured\" first", c.Explain())
	}
}
