package eviction

import (
	"maps"
	"slices"

	"jettison/stats"
)

// Input is one look, with further facts from the caller.
type Input struct {
	Summary *stats.Summary // must not be nil; only read during the step
	// Pods holds the known pod objects by UID. For a pod without an object, the Summary's data is
	// used.
	Pods map[string]*Pod
	// Foreign reports that the Summary is a kubelet's, or was written by hand. Pod objects then
	// decide which other pods exist, and which volumes are on the node's disk. A Summary of the agent
	// itself contains all pods of the kernel and the runtime, and only local volumes.
	Foreign bool
	// Growing lists cgroups at the top of the hierarchy and their recent growth, so that the breaker
	// can name one. Optional.
	Growing []Growth
	// MemoryOnly reports that only memory and tasks of pods were measured. Thresholds for anything
	// else ask for no victim in this step, and their state does not change.
	MemoryOnly bool
	// Measuring reports that pods' disk usage was measured before the disks were short. Thresholds
	// for disks ask for no victim yet, but reclaim goes ahead.
	Measuring bool
	// ObserveDisks reports that a kubelet manages the disks. Their signals only set conditions:
	// nothing is reclaimed and no pod evicted for them, nor for a pod's own limits on local storage.
	ObserveDisks bool
	// Terse omits the texts of the Decision, and lets its eviction point into the Summary, until
	// AddTexts completes the Decision. Such a step allocates nothing, because no memory may be
	// available between a crossing and the kill.
	Terse bool
}

// object returns the object of a pod; nil if it is unknown, or if the runtime reports another pod
// with that UID.
func (in *Input) object(p *stats.PodStats) *Pod {
	if object := in.Pods[p.PodRef.UID]; object != nil && object.belongsTo(p) {
		return object
	}
	return nil
}

// unseen calls consider for each known pod object without a pod in a foreign Summary, because the
// kubelet ranks such pods too. They are not measured, so they are ranked last. The order is that of
// their UIDs, so that the same input has the same result.
func (in *Input) unseen(consider func(*stats.PodStats, *Pod)) {
	contained := make(map[string]struct{}, len(in.Summary.Pods))
	for i := range in.Summary.Pods {
		contained[in.Summary.Pods[i].PodRef.UID] = struct{}{}
	}
	for _, uid := range slices.Sorted(maps.Keys(in.Pods)) {
		object := in.Pods[uid]
		if _, ok := contained[uid]; !ok && object != nil && !object.finished {
			consider(object.unseen(), object)
		}
	}
}

// empty reports whether no process runs in the pod, so that it cannot be evicted. The kernel's
// state decides; if it was not read, the pod's phase decides.
func empty(p *stats.PodStats, object *Pod) bool {
	if p.Populated.OK {
		return !p.Populated.V
	}
	return object != nil && object.finished
}
