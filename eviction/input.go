package eviction

import "jettison/stats"

// Input is one look, and what goes with it.
type Input struct {
	Summary *stats.Summary // must not be nil; only read during the step
	// Pods are the objects that are known, by UID; without one, what the Summary knows of a pod
	// counts.
	Pods map[string]*Pod
	// Foreign: the Summary is a kubelet's, or was written by hand. Which pods there are beside those
	// in it, and which volumes lie on the node's disk, is what objects say. What the agent itself
	// looks at, kernel and runtime have, and it measures local volumes only.
	Foreign bool
	// Growing are cgroups at the top of the hierarchy and by how much they grew lately, for the
	// breaker to name one. Optional.
	Growing []Growth
	// MemoryOnly: nothing was measured of pods but memory and tasks. Thresholds for anything else ask
	// for no victim in this step, and are none the wiser for it.
	MemoryOnly bool
	// Measuring: what pods take of the disks was measured before they were short. Thresholds for disks
	// ask for no victim yet; what can be reclaimed is.
	Measuring bool
	// ObserveDisks: a kubelet takes care of the disks. Their signals only set conditions: nothing is
	// reclaimed and no pod evicted for them, nor for a pod's own limits on local storage.
	ObserveDisks bool
	// Terse: the Decision has no words, and its eviction points into the Summary, until Words
	// completes it. Such a step allocates nothing: there may be no memory to be had between a
	// threshold that is crossed and the kill.
	Terse bool
}

// object is what is known of a pod by its object; nil: nothing is, or it is of another pod than the
// runtime has by this UID.
func (in *Input) object(p *stats.PodStats) *Pod {
	if object := in.Pods[p.PodRef.UID]; object != nil && object.of(p) {
		return object
	}
	return nil
}

// unseen considers the pods whose object is known and that a foreign Summary does not have: as the
// kubelet does, but they are not measured, so they come last.
func (in *Input) unseen(consider func(*stats.PodStats, *Pod)) {
	has := make(map[string]struct{}, len(in.Summary.Pods))
	for i := range in.Summary.Pods {
		has[in.Summary.Pods[i].PodRef.UID] = struct{}{}
	}
	for uid, object := range in.Pods {
		if _, ok := has[uid]; !ok && object != nil && !object.finished {
			consider(&object.unseen, object)
		}
	}
}

// empty: nothing lives in the pod, so there is no pod to evict. The kernel knows; where it was not
// asked, the pod's phase counts.
func empty(p *stats.PodStats, object *Pod) bool {
	if p.Populated.OK {
		return !p.Populated.V
	}
	return object != nil && object.finished
}
