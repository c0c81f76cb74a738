package nodedescheduler

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"jettison/cri"
	"jettison/eviction"
	"jettison/reclaim/nodedeschedule"
	"jettison/stats"
	"jettison/stats/read"
)

// seenAnnotation holds the time at which a kubelet first saw a pod
// (pkg/kubelet/types/pod_update.go ConfigFirstSeenAnnotationKey).
const seenAnnotation = "kubernetes.io/config.seen"

// Input is the input of a plan: the available data about the node's pods.
type Input struct {
	Pods       read.Index
	Objects    map[string]*eviction.Pod // by UID; nil: none available
	PodObjects []*v1.Pod                // the complete objects
	// UIDs of the objects that only members of the socket's group provided. They can protect their
	// pods, but cannot make them victims.
	Members         map[string]bool
	Summary         *stats.Summary
	Policy          *eviction.Policy
	Self            string          // cgroup of this process; empty: unknown
	RecentlyEvicted map[string]bool // UIDs of evicted pods that may have come back
}

// Look converts the data to the input type of nodedeschedule.
func (s *Input) Look() nodedeschedule.Look {
	memory := &s.Summary.Node.Memory
	out := nodedeschedule.Look{MemoryCapacity: memory.Ordinary(),
		MemoryInUse: memory.WorkingSetBytes}
	used := make(map[string]*stats.PodStats, len(s.Summary.Pods))
	for i := range s.Summary.Pods {
		used[s.Summary.Pods[i].PodRef.UID] = &s.Summary.Pods[i]
	}
	whole := make(map[string]*v1.Pod, len(s.PodObjects))
	for _, p := range s.PodObjects {
		whole[string(p.UID)] = p
	}
	for uid, p := range s.Pods {
		pod := s.runtimePod(p)
		pod.EvictedBefore = s.RecentlyEvicted[uid]
		if u := used[uid]; u != nil {
			pod.Memory = u.Memory.WorkingSetBytes
			if u.Self {
				pod.Protected = s.protected(u)
			}
		}
		if object := whole[uid]; object != nil && object.Namespace == p.PodRef.Namespace &&
			object.Name == p.PodRef.Name {
			addObjectData(&pod, object, s.Members[uid])
		}
		out.Pods = append(out.Pods, pod)
	}
	return out
}

// podStats returns a pod in the format of evictions, and its object; nil: none available.
func (s *Input) podStats(uid string) (stats.PodStats, *eviction.Pod) {
	for i := range s.Summary.Pods {
		if p := &s.Summary.Pods[i]; p.PodRef.UID == uid {
			return *p, s.Objects[uid]
		}
	}
	return s.Pods[uid].FromRuntime(s.Self), s.Objects[uid]
}

// runtimePod returns the data that the container runtime provides about a pod. Mounts in
// container statuses are not read: a tenant may have any number of them.
func (s *Input) runtimePod(p *read.Pod) nodedeschedule.Pod {
	alone := p.FromRuntime(s.Self)
	out := nodedeschedule.Pod{
		PodReference: p.PodRef, Protected: s.protected(&alone), QOSClass: alone.QOSClass, Since: startTime(p),
		Ready: p.Ready(), Owner: p.Sandboxes[0].Owner,
	}
	for i := range p.Sandboxes {
		if sandbox := &p.Sandboxes[i]; sandbox.Ready && sandbox.CreatedAt.After(out.Made) {
			out.Made = sandbox.CreatedAt
		}
	}
	newest := map[string]*cri.Container{}
	for _, list := range [][]cri.Container{p.Exited, p.Containers} {
		for i := range list {
			c := &list[i]
			if was := newest[c.Name]; was == nil || c.Attempt > was.Attempt || c.Attempt == was.Attempt &&
				c.CreatedAt.After(was.CreatedAt) {
				newest[c.Name] = c
			}
		}
	}
	for name, c := range newest {
		one := nodedeschedule.Container{Name: name, Restarts: uint64(c.Attempt),
			Exited: c.State == cri.Exited}
		if c.Ended != nil {
			one.Ended = stats.Some(nodedeschedule.End{Code: c.Ended.Code, Reason: c.Ended.Reason,
				At: c.Ended.At})
		}
		out.Containers = append(out.Containers, one)
	}
	return out
}

// protected returns why a pod is never a victim; empty if it may be a victim. A priority that only
// members claim does not replace the protection of an unknown one.
func (s *Input) protected(pod *stats.PodStats) string {
	uid := pod.PodRef.UID
	_, why := s.Policy.PriorityAndProtection(pod, s.Objects[uid])
	if why == "" && s.Members[uid] {
		_, why = s.Policy.PriorityAndProtection(pod, nil)
	}
	return why
}

// startTime returns the time at which a kubelet first saw the pod, or else the creation time of
// its oldest sandbox.
func startTime(p *read.Pod) (at time.Time) {
	if seen, err := time.Parse(time.RFC3339Nano, p.Annotations[seenAnnotation]); err == nil {
		return seen
	}
	for i := range p.Sandboxes {
		if made := p.Sandboxes[i].CreatedAt; !made.IsZero() && (at.IsZero() || made.Before(at)) {
			at = made
		}
	}
	return at
}

// addObjectData adds data from a pod object that the runtime does not provide. From a member's object
// it adds only the use of local storage.
func addObjectData(pod *nodedeschedule.Pod, object *v1.Pod, member bool) {
	local := slices.ContainsFunc(object.Spec.Volumes,
		func(v v1.Volume) bool { return v.EmptyDir != nil || v.HostPath != nil })
	if !member || local {
		pod.LocalStorage = stats.Some(local)
	}
	if member {
		return
	}
	if owner := metav1.GetControllerOf(object); owner != nil {
		pod.Owner = owner.Kind
	} else if len(object.OwnerReferences) > 0 {
		pod.Owner = object.OwnerReferences[0].Kind
	}
}
