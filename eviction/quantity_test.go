package eviction

import (
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// A text that would keep the parser busy for minutes is rejected immediately; what a kubelet
// accepts is accepted.
func TestQuantities(t *testing.T) {
	for text, ok := range map[string]bool{
		"100Mi": true, "1E": true, "1Ei": true, "1e3": true, "1E3": true, "12e-2": true, "1e400": true, "0.5": true, "-1": true,
		"1e-99990000": false, "1E99999999": false, "1e99999999999999999999999": false, "": false, "1e": false, "e": false, "1e+1001": false,
	} {
		q, err := parseQuantity(text)
		if (err == nil) != ok {
			t.Errorf("parseQuantity(%q) = %s, error %v, want accepted: %v", text, q.String(), err, ok)
		}
	}
	long := make([]byte, 1<<20)
	for i := range long {
		long[i] = '9'
	}
	if _, err := parseQuantity(string(long)); err == nil {
		t.Error("parseQuantity accepts a million digits, want an error")
	}
}

// Weakness 28: a quantity above every int64 is more than anything, not 0. A threshold of it is
// always met, as the kubelet's, and a warning is issued at start; no pod exceeds such a request or
// limit.
func TestQuantitiesThatNoNumberHolds(t *testing.T) {
	for text, want := range map[string]uint64{
		"100E": math.MaxInt64, "10Ei": math.MaxInt64, "1e30": math.MaxInt64, "9e400": math.MaxInt64, "18446744073709551617": math.MaxInt64,
		"9223372036854775807": math.MaxInt64, "7E": 7e18, "0.5": 1, "1500m": 2, "0": 0, "-1": 0, "-100E": 0,
	} {
		q := parsed(text)
		if got := whole(&q); got != want {
			t.Errorf("whole(%s) = %d, want %d", text, got, want)
		}
	}
	thresholds, _, _ := in("hard memory.available 100E").Parse()
	if got := CheckCapacity(thresholds, func(stats.Signal) stats.Observation { return stats.Observation{Capacity: 1 << 40, OK: true} }); len(got) != 1 {
		t.Errorf("warnings for a threshold above everything = %v, want one", got)
	}
	m, look := NewManager(Config{Thresholds: thresholds}), Input{Summary: &stats.Summary{}}
	look.Summary.Node.Memory = stats.NodeMemoryStats{CapacityBytes: stats.Some(uint64(1 << 40)), WorkingSetBytes: stats.Some(uint64(1)), KernelAvailableBytes: stats.Some(uint64(1 << 40))}
	m.config.MemoryAvailable = stats.MemoryAvailableLower
	if d := m.Step(epoch, look); len(d.Met) != 1 {
		t.Error("threshold 100E is not met, want it always met")
	}
	huge, size := v1.ResourceList{v1.ResourceMemory: parsed("100E"), v1.ResourceEphemeralStorage: parsed("100E")}, parsed("100E")
	p := NewPod(&v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: huge, Limits: huge}}},
		Volumes:    []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &size}}}},
	}})
	if p.memoryRequest != math.MaxInt64 || p.storageRequest != math.MaxInt64 {
		t.Errorf("requests = %d, %d, want the maximum", p.memoryRequest, p.storageRequest)
	}
	pod := stats.PodStats{Containers: []stats.ContainerStats{{Name: "c", Logs: stats.Some(stats.FsUsage{UsedBytes: 1 << 50})}}}
	pod.EphemeralStorage = stats.PodStorageStats{UsedBytes: stats.Some(uint64(1 << 50)), Volumes: []stats.VolumeStats{{Name: "v", FsUsage: stats.FsUsage{UsedBytes: 1 << 50}}}}
	if signal, message := exceeds(&pod, p); signal != "" {
		t.Errorf("exceeded %s: %s, want nothing exceeded", signal, message)
	}
}

// Others own the object too, and a quantity with a fraction is a pointer: changes of one do not
// reach the other.
func TestPodSharesNothingWithObject(t *testing.T) {
	requests := func() v1.ResourceList {
		return v1.ResourceList{v1.ResourceMemory: resource.MustParse("1.5Gi"), v1.ResourceEphemeralStorage: resource.MustParse("1.5Gi")}
	}
	object := &v1.Pod{Spec: v1.PodSpec{
		Resources:  &v1.ResourceRequirements{Requests: requests()},
		Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: requests()}}},
	}}
	p := NewPod(object)
	for _, list := range []v1.ResourceList{object.Spec.Resources.Requests, object.Spec.Containers[0].Resources.Requests} {
		for _, q := range list {
			q.Add(resource.MustParse("1Gi"))
		}
	}
	for _, q := range []resource.Quantity{*p.memoryOfPod, p.containers[0].memoryRequest, p.containers[0].storageRequest} {
		if q.Value() != 3<<29 {
			t.Errorf("quantity after a change of the copy = %d, want 1.5Gi", q.Value())
		}
	}
}
