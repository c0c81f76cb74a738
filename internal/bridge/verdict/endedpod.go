package verdict

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// judgeTerminal is of a pod that runs no more. One that came to that without the bridge stays as it
// is.
func judgeTerminal(now time.Time, r *api.Record, pod *v1.Pod, ours bool, wrote time.Time) Verdict {
	s := &pod.Status
	switch {
	case !ours:
		return Verdict{Act: Done, Reason: "it has ended already"}
	case s.Phase == v1.PodSucceeded:
		return Verdict{Act: Done, Reason: "it has succeeded"}
	case s.Reason == "" && kubeletReportIsFinal(pod):
		return Verdict{Act: Hold}
	case s.Reason == "" || s.Reason == reasonOf(r) && s.Message == "" && r.Message != "":
		return Verdict{Act: Restore, Reason: "the reason was lost"}
	case s.Reason == reasonOf(r) && pod.Annotations[Annotation] == r.ID && kubeletMayBeDenied(pod):
		// Policy jettison-evicted refuses what its kubelet says without a reason, and that it has
		// succeeded. One that ends it now has the API's word in its next one; one that had ended it by
		// then has no next word (pkg/kubelet/kubelet.go SyncTerminatedPod, v1.36.3).
		if at := kubeletDeadline(r, wrote); !reached(now, at, KubeletGrace) {
			return Verdict{Act: Hold, RecheckAt: at}
		}
		return Verdict{Act: Yield, Reason: "its kubelet may have ended it before, and be refused to say so"}
	}
	// Another reason is its kubelet's, which has evicted it, too, or ended it for something else, and
	// goes by that.
	return Verdict{Act: Hold}
}

// mayBeRefused tells that a pod's kubelet may have ended it by itself before it heard of the
// eviction, and so have no reason for it in its last word, or that it has succeeded: it has not
// told how the containers ended, or that all ended well; or it has told, as it does two seconds
// before it says that the pod ended (pkg/kubelet/status/status_manager.go mergePodStatus, v1.36.3),
// and the pod is one that ends by itself.
func kubeletMayBeDenied(pod *v1.Pod) bool {
	return endOf(pod) != EndFailed || EndsByItself(pod)
}

// EndsByItself tells that a pod's containers, or one of them, may end and not be started anew: its
// kubelet says then that it has ended. Nobody knows of one whose containers were not kept.
func EndsByItself(pod *v1.Pod) bool {
	rules := func(c v1.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy != v1.ContainerRestartPolicyAlways
	}
	spec := &pod.Spec
	return spec.RestartPolicy != v1.RestartPolicyAlways || len(spec.Containers) == 0 ||
		slices.ContainsFunc(spec.Containers, rules) || slices.ContainsFunc(spec.InitContainers, rules)
}

// lastWord tells that a pod's kubelet has said the last word of it, and will write it every ten
// seconds over whoever gives it a reason: all containers ended well, as after a gentle stop
// (pkg/kubelet/kubelet_pods.go generateAPIPodStatus, v1.36.3), or it was given one before, and none
// runs: those that wait never start where what was to run before them failed.
func kubeletReportIsFinal(pod *v1.Pod) bool {
	end := endOf(pod)
	return end == EndSucceeded || (end == EndFailed || end == EndWaiting) &&
		strings.Contains(pod.Annotations[Annotation], restoreSeparator)
}

// End is how a container, or a pod, has ended.
type ContainerEnd int

// Ends, of which the last counts for a pod.
const (
	EndUnknown   ContainerEnd = iota // there are no containers
	EndSucceeded                     // with exit code 0
	EndFailed
	EndWaiting // it has not started, or waits to start anew, as far as that is told
	EndRunning // it runs, as far as that is told
)

// EndOf is how a container has ended.
func EndOf(s *v1.ContainerStatus) ContainerEnd {
	switch {
	case s.State.Running != nil:
		return EndRunning
	case s.State.Terminated == nil:
		return EndWaiting
	case s.State.Terminated.ExitCode != 0:
		return EndFailed
	}
	return EndSucceeded
}

func endOf(pod *v1.Pod) (end ContainerEnd) {
	for i := range pod.Status.ContainerStatuses {
		end = max(end, EndOf(&pod.Status.ContainerStatuses[i]))
	}
	return end
}
