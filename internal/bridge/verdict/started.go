package verdict

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// someContainer stands for one whose name nobody knows.
const someContainer = "(unknown)"

// outlived names a container of the pod that has started after the end of all that ran, as the agent or its status tells; empty: none has.
func outlived(r *api.Record, pod *v1.Pod) string {
	at := end(r)
	name := startedAfter(pod, at)
	if name == "" && r.Restarted.After(at) {
		name = someContainer
	}
	return name
}

// end is when nothing of the victim was left; until that is known, when its end began: zero where nobody knows that either. A container
// that its kubelet starts anew while others of the pod are still being stopped ends with these.
func end(r *api.Record) time.Time {
	if r.Emptied.Known() {
		return r.Emptied.Time
	}
	return r.EndBegan().Time
}

// startedAfter names a container of the pod that has started after an instant; empty: none has, as far as its status tells. A status has
// whole seconds: what started within the second of the kill counts as killed, for the one that is evicted most often starts anew and
// leaks at once.
func startedAfter(pod *v1.Pod, at time.Time) string {
	if at.IsZero() {
		return ""
	}
	after := func(s *v1.ContainerState) bool {
		return s.Running != nil && s.Running.StartedAt.Unix() > at.Unix() || s.Terminated != nil && s.Terminated.StartedAt.Unix() > at.Unix()
	}
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if c := &list[i]; after(&c.State) || after(&c.LastTerminationState) {
				return c.Name
			}
		}
	}
	return ""
}
