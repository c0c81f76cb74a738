package verdict

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// someContainer stands for one whose name nobody knows.
const someContainer = "(unknown)"

// outlived names a container of the pod that has started after its end began, as the agent or its status tells; empty: none has.
func outlived(r *api.Record, pod *v1.Pod) string {
	name := startedAfter(pod, killedAt(r))
	if name == "" && !r.Restarted.IsZero() {
		name = someContainer
	}
	return name
}

// startedAfter names a container of the pod that has started after an instant; empty: none has, as far as its status tells. A status has
// whole seconds: what started within the second of the kill counts as killed, for the one that is evicted most often starts anew and
// leaks at once.
func startedAfter(pod *v1.Pod, at *time.Time) string {
	if at == nil {
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
