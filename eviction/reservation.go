package eviction

import (
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// HardReservation returns the resources that the hard thresholds of memory.available and
// nodefs.available reserve on a node with that capacity. Percentages are resolved like those of the
// thresholds (pkg/kubelet/cm/helpers.go hardEvictionReservation, v1.37.2). As there, a percentage
// of a resource that is missing in capacity is 0.
func HardReservation(thresholds []Threshold, capacity v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for _, t := range thresholds {
		if !t.Hard() {
			continue
		}
		var name v1.ResourceName
		switch t.Signal {
		case stats.SignalMemoryAvailable:
			name = v1.ResourceMemory
		case stats.SignalNodeFsAvailable:
			name = v1.ResourceEphemeralStorage
		default:
			continue
		}
		if q := t.Value.Quantity; q != nil {
			out[name] = q.DeepCopy()
			continue
		}
		total := capacity[name]
		share := min(t.Value.Of(bytes(total)), math.MaxInt64)
		out[name] = *resource.NewQuantity(int64(share), resource.BinarySI)
	}
	return out
}
