package eviction

import (
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"jettison/stats"
)

// HardReservation is what the hard thresholds of memory.available and nodefs.available keep back of
// a node with that capacity; shares of it are resolved as the thresholds' own are
// (pkg/kubelet/cm/helpers.go hardEvictionReservation, v1.36.3). A share of what the capacity does
// not name is 0, as there.
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
		has := capacity[name]
		share := min(t.Value.Of(bytes(has)), math.MaxInt64)
		out[name] = *resource.NewQuantity(int64(share), resource.BinarySI)
	}
	return out
}
