package admit

import (
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

// list reads "cpu=4 memory=8Gi".
func list(text string) v1.ResourceList {
	out := v1.ResourceList{}
	for _, f := range strings.Fields(text) {
		name, q, _ := strings.Cut(f, "=")
		out[v1.ResourceName(name)] = resource.MustParse(q)
	}
	return out
}

// told writes a list as list reads it, by name.
func told(l v1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		q := l[name]
		out = append(out, string(name)+"="+q.String())
	}
	return strings.Join(out, " ")
}

// What the kubelet's TestNodeAllocatableReservationForScheduling and TestNodeAllocatableForEnforcement ask, and what goes beyond it.
func TestAllocatable(t *testing.T) {
	for name, c := range map[string]struct {
		capacity, kube, system, eviction string
		allocatable, enforced            string
	}{
		"nothing is reserved": {
			capacity: "cpu=10 memory=10Gi", allocatable: "cpu=10 memory=10Gi", enforced: "cpu=10 memory=10Gi",
		},
		"thresholds are not the cgroup's": {
			"cpu=10 memory=10Gi", "cpu=100m memory=100Mi", "cpu=50m memory=50Mi", "memory=100Mi",
			"cpu=9850m memory=9990Mi", "cpu=9850m memory=10090Mi",
		},
		"never below 0": {
			"cpu=1 memory=1Gi pid=100", "cpu=2", "memory=1Gi pid=101", "memory=1", "cpu=0 memory=0 pid=0", "cpu=0 memory=0 pid=0",
		},
		"what the node does not have is not there": {
			"cpu=1", "memory=1Gi", "ephemeral-storage=1Gi", "memory=1", "cpu=1", "cpu=1",
		},
		"extended resources are whole": {
			"cpu=1 pods=110 example.com/gpu=2", "cpu=1", "", "", "cpu=0 example.com/gpu=2 pods=110", "cpu=0 example.com/gpu=2 pods=110",
		},
		"huge pages are memory that pods cannot request as memory": {
			"memory=10Gi hugepages-2Mi=1Gi hugepages-1Gi=2Gi", "memory=1Gi", "", "memory=100Mi",
			"hugepages-1Gi=2Gi hugepages-2Mi=1Gi memory=6044Mi", "hugepages-1Gi=2Gi hugepages-2Mi=1Gi memory=9Gi",
		},
		"more huge pages than memory": {
			"memory=1Gi hugepages-1Gi=2Gi", "", "", "", "hugepages-1Gi=2Gi memory=0", "hugepages-1Gi=2Gi memory=1Gi",
		},
		"disks": {
			"ephemeral-storage=100Gi", "ephemeral-storage=1Gi", "ephemeral-storage=2Gi", "ephemeral-storage=10Gi",
			"ephemeral-storage=87Gi", "ephemeral-storage=97Gi",
		},
	} {
		capacity := list(c.capacity)
		r := Reserved{Kube: list(c.kube), System: list(c.system), Eviction: list(c.eviction)}
		if got := told(Allocatable(capacity, r)); got != c.allocatable {
			t.Errorf("%s: allocatable %s, want %s", name, got, c.allocatable)
		}
		if got := told(Enforced(capacity, r)); got != c.enforced {
			t.Errorf("%s: enforced %s, want %s", name, got, c.enforced)
		}
		if told(capacity) != told(list(c.capacity)) {
			t.Errorf("%s: the capacity was changed: %s", name, told(capacity))
		}
	}
}

// The words of a kubelet that does not start.
func TestMoreIsReservedThanThereIs(t *testing.T) {
	r := Reserved{Kube: list("cpu=1 memory=600Mi"), System: list("cpu=1 memory=400Mi"), Eviction: list("memory=100Mi")}
	got := Exceeded(list("cpu=1500m memory=1Gi pods=110"), r)
	want := []string{
		`Resource "cpu" has a reservation of 2 but capacity of 1500m. Expected capacity >= reservation.`,
		`Resource "memory" has a reservation of 1100Mi but capacity of 1Gi. Expected capacity >= reservation.`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := Exceeded(list("cpu=2 memory=1100Mi"), r); len(got) > 0 {
		t.Errorf("exactly as much as there is: %q", got)
	}
}

// Against plain numbers: what is allocatable is never more than what the cgroup may have, nor that than the capacity; no part counts twice.
func TestAllocatableIsPlainArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := func(what string) int64 { return rapid.Int64Range(0, 1<<40).Draw(t, what) }
		of := func(n int64) v1.ResourceList {
			return v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(n, resource.BinarySI)}
		}
		capacity, kube, system, threshold := amount("capacity"), amount("kube"), amount("system"), amount("threshold")
		r := Reserved{Kube: of(kube), System: of(system), Eviction: of(threshold)}
		enforced, allocatable := Enforced(of(capacity), r), Allocatable(of(capacity), r)
		if got := enforced.Memory().Value(); got != max(capacity-kube-system, 0) {
			t.Fatalf("enforced %d", got)
		}
		if got := allocatable.Memory().Value(); got != max(capacity-kube-system-threshold, 0) {
			t.Fatalf("allocatable %d", got)
		}
		if exceeded := len(Exceeded(of(capacity), r)) > 0; exceeded != (kube+system+threshold > capacity) {
			t.Fatalf("exceeded %v", exceeded)
		}
	})
}
