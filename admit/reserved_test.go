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

// format writes a list in the form that list reads, by name.
func format(l v1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		q := l[name]
		out = append(out, string(name)+"="+q.String())
	}
	return strings.Join(out, " ")
}

// The cases of the kubelet's TestNodeAllocatableReservationForScheduling and
// TestNodeAllocatableForEnforcement, and more.
func TestAllocatable(t *testing.T) {
	for name, c := range map[string]struct {
		capacity, kube, system, eviction string
		allocatable, enforced            string
	}{
		"nothing is reserved": {
			capacity: "cpu=10 memory=10Gi", allocatable: "cpu=10 memory=10Gi", enforced: "cpu=10 memory=10Gi",
		},
		"thresholds do not limit the cgroup": {
			"cpu=10 memory=10Gi", "cpu=100m memory=100Mi", "cpu=50m memory=50Mi", "memory=100Mi",
			"cpu=9850m memory=9990Mi", "cpu=9850m memory=10090Mi",
		},
		"never below 0": {
			"cpu=1 memory=1Gi pid=100", "cpu=2", "memory=1Gi pid=101", "memory=1", "cpu=0 memory=0 pid=0", "cpu=0 memory=0 pid=0",
		},
		"resources that the node lacks are absent": {
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
		if got := format(Allocatable(capacity, r)); got != c.allocatable {
			t.Errorf("%s: allocatable %s, want %s", name, got, c.allocatable)
		}
		if got := format(Enforced(capacity, r)); got != c.enforced {
			t.Errorf("%s: enforced %s, want %s", name, got, c.enforced)
		}
		if format(capacity) != format(list(c.capacity)) {
			t.Errorf("%s: the capacity was changed: %s", name, format(capacity))
		}
	}
}

// The error texts are those of a kubelet that does not start.
func TestReservationExceedsCapacity(t *testing.T) {
	r := Reserved{Kube: list("cpu=1 memory=600Mi"), System: list("cpu=1 memory=400Mi"), Eviction: list("memory=100Mi")}
	got := Exceeded(list("cpu=1500m memory=1Gi pods=110"), r)
	want := []string{
		`Resource "cpu" has a reservation of 2 but capacity of 1500m. Expected capacity >= reservation.`,
		`Resource "memory" has a reservation of 1100Mi but capacity of 1Gi. Expected capacity >= reservation.`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("Exceeded() = %q, want %q", got, want)
	}
	if got := Exceeded(list("cpu=2 memory=1100Mi"), r); len(got) > 0 {
		t.Errorf("Exceeded() for a reservation of exactly the capacity = %q, want none", got)
	}
}

// The results equal those of plain arithmetic on numbers.
func TestAllocatableMatchesArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := func(label string) int64 { return rapid.Int64Range(0, 1<<40).Draw(t, label) }
		of := func(n int64) v1.ResourceList {
			return v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(n, resource.BinarySI)}
		}
		capacity, kube, system, threshold := amount("capacity"), amount("kube"), amount("system"), amount("threshold")
		r := Reserved{Kube: of(kube), System: of(system), Eviction: of(threshold)}
		enforced, allocatable := Enforced(of(capacity), r), Allocatable(of(capacity), r)
		if got := enforced.Memory().Value(); got != max(capacity-kube-system, 0) {
			t.Fatalf("enforced memory = %d, want %d", got, max(capacity-kube-system, 0))
		}
		if got := allocatable.Memory().Value(); got != max(capacity-kube-system-threshold, 0) {
			t.Fatalf("allocatable memory = %d, want %d", got, max(capacity-kube-system-threshold, 0))
		}
		if exceeded := len(Exceeded(of(capacity), r)) > 0; exceeded != (kube+system+threshold > capacity) {
			t.Fatalf("reservation exceeds the capacity = %v, want %v", exceeded, !exceeded)
		}
	})
}
