package verdict

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// judgeTerminal judges a pod in a terminal phase. A pod that ended without the bridge is not
// changed. failedAt is as in Judge.
func judgeTerminal(now time.Time, r *api.Record, pod *v1.Pod, setByBridge bool, failedAt time.Time) Verdict {
	s := &pod.Status
	switch {
	case !setByBridge:
		return Verdict{Act: Done, Reason: "pod had already ended"}
	case s.Phase == v1.PodSucceeded:
		return Verdict{Act: Done, Reason: "pod succeeded"}
	case s.Reason == "" && kubeletReportIsFinal(pod):
		return Verdict{Act: Hold}
	case s.Reason == "" || s.Reason == reasonOf(r) && s.Message == "" && r.Message != "":
		return Verdict{Act: Restore, Reason: "reason was removed"}
	case s.Reason == reasonOf(r) && pod.Annotations[Annotation] == r.ID && kubeletMayBeDenied(pod):
		// The admission policy jettison-evicted denies kubelet reports without a reason, and
		// reports that the pod succeeded. A kubelet that ends the pod now includes the status from
		// the API in its next report. A kubelet that had ended it by then sends no further report
		// (pkg/kubelet/kubelet.go SyncTerminatedPod, v1.36.3).
		if at := kubeletDeadline(r, failedAt); !reached(now, at, KubeletGrace) {
			return Verdict{Act: Hold, RecheckAt: at}
		}
		return Verdict{Act: Yield, Reason: "kubelet may have ended the pod earlier and cannot report it"}
	}
	// Another reason is the kubelet's: it evicted the pod too, or ended it for another cause, and
	// it keeps that reason.
	return Verdict{Act: Hold}
}

// kubeletMayBeDenied reports whether the pod's kubelet may have ended the pod before it saw the
// eviction. Its final report would then have no reason, or phase Succeeded, and would be denied.
// That is possible if the kubelet has not reported how the containers ended, or reported that all
// succeeded. It is also possible if the pod ends by itself: the kubelet reports the containers two
// seconds before the end of the pod (pkg/kubelet/status/status_manager.go mergePodStatus, v1.36.3).
func kubeletMayBeDenied(pod *v1.Pod) bool {
	return endOf(pod) != EndFailed || EndsByItself(pod)
}

// EndsByItself reports whether some of the pod's containers may end without a restart, so that its
// kubelet reports the pod as ended. It returns true if the containers are unknown.
func EndsByItself(pod *v1.Pod) bool {
	endsOnce := func(c v1.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy != v1.ContainerRestartPolicyAlways
	}
	spec := &pod.Spec
	return spec.RestartPolicy != v1.RestartPolicyAlways || len(spec.Containers) == 0 ||
		slices.ContainsFunc(spec.Containers, endsOnce) || slices.ContainsFunc(spec.InitContainers, endsOnce)
}

// kubeletReportIsFinal reports whether the pod's kubelet has sent its final status, which it
// repeats every ten seconds over any other reason. That is so if all containers succeeded, as after
// a graceful stop (pkg/kubelet/kubelet_pods.go generateAPIPodStatus, v1.36.3), or if the status was
// restored before and no container runs. Waiting containers never start after an earlier one
// failed.
func kubeletReportIsFinal(pod *v1.Pod) bool {
	end := endOf(pod)
	return end == EndSucceeded || (end == EndFailed || end == EndWaiting) &&
		strings.Contains(pod.Annotations[Annotation], restoreSeparator)
}

// ContainerEnd is the way a container, or a pod, has ended.
type ContainerEnd int

// Values of ContainerEnd. A pod has the highest value of its containers.
const (
	EndUnknown   ContainerEnd = iota // the pod has no containers
	EndSucceeded                     // exit code 0
	EndFailed
	EndWaiting // not started, or waiting for a restart, according to its status
	EndRunning // running, according to its status
)

// EndOf returns how a container has ended.
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
