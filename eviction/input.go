package eviction

import "jettison/stats"

// Input is one look, with the caller's other facts about it.
type Input struct {
	Summary *stats.Summary // must not be nil; only read during the step
	// Pods holds the known objects by UID. For a pod without one, the Summary's data is used.
	Pods map[string]*Pod
	// Foreign reports that the Summary is a kubelet's, or was written by hand. Pod objects then decide
	// which other pods exist, and which volumes are on the node's disk. A Summary of the agent itself
	// contains all pods of the kernel and the runtime, and only local volumes.
	Foreign bool
	// Growing lists cgroups at the top of the hierarchy and their recent growth, so that the breaker
	// can name one. Optional.
	Growing []Growth
	// MemoryOnly reports that only memory and tasks of pods were measured. Thresholds for anything
	// else ask for no victim in this step, and their state does not change.
	MemoryOnly bool
	// Measuring reports that pods' disk usage was measured before the disks were short. Thresholds for
	// disks ask for no victim yet, but reclaim goes ahead.
	Measuring bool
	// ObserveDisks reports that a kubelet manages the disks. Their signals only set conditions:
	// nothing is reclaimed and no pod evicted for them, nor for a pod's own limits on local storage.
	ObserveDisks bool
	// Terse omits the words of the Decision, and its eviction points into the Summary, until AddTexts
	// completes it. Such a step allocates nothing, because no memory may be available between a
	// crossing and the kill.
	Terse bool
}

// object returns the object of a pod; nil if it is unknown, or if it belongs to another pod than
// the one with this UID in the runtime.
func (in *Input) object(p *stats.PodStats) *Pod {
	if object := in.Pods[p.PodRef.UID]; object != nil && object.of(p) {
		return object
	}
	return nil
}

// unseen passes on the pods whose object is known and that a foreign Summary does not contain, like
// the kubelet. They are not measured, so they are ranked last.
func (in *Input) unseen(consider func(*stats.PodStats, *Pod)) {
	contained := make(map[string]struct{}, len(in.Summary.Pods))
	for i := range in.Summary.Pods {
		contained[in.Summary.Pods[i].PodRef.UID] = struct{}{}
	}
	for uid, object := range in.Pods {
		if _, ok := contained[uid]; !ok && object != nil && !object.finished {
			consider(&object.unseen, object)
		}
	}
}

// empty reports whether no process runs in the pod, so that there is no pod to evict. The kernel
// decides; if it was not read, the pod's phase does.
func empty(p *stats.PodStats, object *Pod) bool {
	if p.Populated.OK {
		return !p.Populated.V
	}
	return object != nil && object.finished
}
