package verdict

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// Annotation is the pod annotation with the ID of the eviction's record. It makes the kubelet
// handle the patch as an update of the pod instead of its status alone. The pod worker then tears
// the pod down and never restarts it (pkg/kubelet/kubelet.go HandlePodReconcile,
// pkg/kubelet/pod_workers.go UpdatePod, v1.36.3). The kubelet would overwrite a change of the
// status alone.
const Annotation = api.AnnotationEvicted

// Reasons in a pod's status. The first is the kubelet's (pkg/kubelet/eviction/helpers.go Reason,
// v1.36.3).
const (
	ReasonEvicted = "Evicted"
	ReasonTarget  = "EvictionByJettison" // of the condition DisruptionTarget
	// reason of Ready and ContainersReady, as the kubelet sets it for a failed pod
	reasonFailed = "PodFailed"
)

// mirrorAnnotation marks the API object of a static pod. The kubelet overwrites any status of it.
const mirrorAnnotation = v1.MirrorPodAnnotationKey

// SandboxTimeout is the time that a dead victim with host ports or devices waits for the end of its
// sandbox before it is set to Failed anyway: a runtime that hangs must not keep the owner from
// creating a replacement. If the pod failed while its sandbox still holds these resources, the
// scheduler would assign them twice.
const SandboxTimeout = time.Minute

// KubeletGrace is the time after the kill, and after the bridge set the pod to Failed, in which a
// reverted status is left to the kubelet. The kubelet has seen the change and tears the pod down as
// soon as its current operation has ended; until then it writes its status from memory
// (pkg/kubelet/status status_manager.go syncBatch and mergePodStatus, v1.36.3). Overwriting that
// status repeatedly would make the pod's owner create one pod after another.
const KubeletGrace = time.Minute

// MarkDelay is the time after the kill in which the victim usually dies. Its status is then written
// once, with the condition DisruptionTarget, and does not wait for the response to an earlier write:
// on a busy node the record and the response take some 100 ms each. The kubelet reports the end of a
// pod later. A pod that is not set to Failed at its end (failsAtItsEnd) is marked without delay.
const MarkDelay = time.Second

// Act is the action that is due for a record.
type Act int

// Values of Act.
const (
	Wait    Act = iota // nothing until the record or the pod changes
	Done               // nothing, and nothing later
	Hold               // nothing unless the pod's status is reverted: it is as the record requires
	Mark               // set condition DisruptionTarget to True: the victim is chosen
	Unmark             // set that condition to False: the pod was not killed, or runs again
	Fail               // set phase Failed
	Restore            // set phase Failed again: the status was reverted
	// allow the kubelet to remove the reason: its report may lack one and would be denied
	Yield
)

var actNames = [...]string{"wait", "done", "hold", "mark", "unmark", "fail", "restore", "yield"}

// String returns the action as one word.
func (a Act) String() string { return actNames[a] }

// Verdict is the result of Judge.
type Verdict struct {
	Act    Act
	Reason string // in words; empty in ordinary cases
	// RestartedContainer names a container that started after the kill; empty: none.
	RestartedContainer string
	// RecheckAt is the time to judge again even if nothing has changed; zero: never.
	RecheckAt time.Time
}

// Judge returns the action that is due for a record. pod is the pod with the record's namespace and
// name in the API; nil: none. failedAt is when the pod was last set to Failed for the record; zero:
// it was not, or the time is unknown.
func Judge(now time.Time, r *api.Record, pod *v1.Pod, failedAt time.Time) Verdict {
	if reason := doneReason(r, pod); reason != "" {
		return Verdict{Act: Done, Reason: reason}
	}
	setByBridge := recordID(pod) == r.ID
	if pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {
		return judgeTerminal(now, r, pod, setByBridge, failedAt)
	}
	if setByBridge {
		if until := kubeletDeadline(r, failedAt); !reached(now, until, KubeletGrace) {
			return Verdict{Act: Wait, Reason: "kubelet is about to end the pod", RecheckAt: until}
		}
	}
	if name := restartedContainer(r, pod); name != "" {
		return unmark(pod, Verdict{Reason: "a container started after the kill", RestartedContainer: name})
	}
	if Abandoned(r) {
		return unmark(pod, Verdict{Reason: "pod was not killed"})
	}
	done, at := released(now, r, pod)
	unmarked := r.Disruption && !hasDisruptionTarget(pod)
	if done && !setByBridge && hasResourceClaims(pod) {
		if unmarked && EndsByItself(pod) { // the kubelet will fail it
			return Verdict{Act: Mark}
		}
		return Verdict{Act: Done,
			Reason: "pod has resource claims, which its kubelet must release before the pod fails"}
	}
	switch {
	case done && setByBridge:
		return Verdict{Act: Restore, Reason: "phase was reverted"}
	case done:
		return Verdict{Act: Fail}
	case unmarked:
		until := r.Killed.Time.Add(MarkDelay)
		if r.WasKilled() && failsAtItsEnd(pod) && !reached(now, until, MarkDelay) {
			return Verdict{Act: Wait, RecheckAt: until}
		}
		return Verdict{Act: Mark, RecheckAt: at}
	}
	return Verdict{Act: Wait, RecheckAt: at}
}

// doneReason returns the reason why no action will ever be due for a record; empty: an action may
// be due.
func doneReason(r *api.Record, pod *v1.Pod) string {
	switch {
	case r.DryRun || r.Outcome == api.OutcomeDryRun:
		return "eviction was a dry run"
	case pod == nil:
		return "pod is deleted"
	case string(pod.UID) != r.Pod.UID:
		return "another pod has the same name"
	case pod.Annotations[mirrorAnnotation] != "":
		return "pod is the mirror of a static pod"
	case pod.DeletionTimestamp != nil:
		return "pod is being deleted"
	}
	return ""
}

// unmark sets the action for a pod that runs: Unmark if the bridge set its DisruptionTarget, else
// Done.
func unmark(pod *v1.Pod, v Verdict) Verdict {
	v.Act = Done
	if c := condition(pod, v1.DisruptionTarget); c != nil && c.Status == v1.ConditionTrue &&
		c.Reason == ReasonTarget {
		v.Act = Unmark
	}
	return v
}

// hasDisruptionTarget reports whether the pod is already marked as about to be disrupted.
func hasDisruptionTarget(pod *v1.Pod) bool {
	c := condition(pod, v1.DisruptionTarget)
	return c != nil && c.Status == v1.ConditionTrue
}

// Abandoned reports whether the victim runs and the agent has abandoned its eviction.
func Abandoned(r *api.Record) bool {
	return !processesGone(r) && (r.Outcome == api.OutcomeAbandoned || r.Outcome == api.OutcomeUndying)
}

// processesGone reports whether no process of the victim is left.
func processesGone(r *api.Record) bool {
	return r.Emptied.Known() || r.Cleaned.Known() || r.Outcome == api.OutcomeBack ||
		r.Outcome == api.OutcomeNotBack
}

// undyingMaxAge is the time for which a victim that survived its kill may still die: a process in
// uninterruptible sleep ends with the I/O that it waits for.
const undyingMaxAge = 7 * 24 * time.Hour

// Final reports whether the agent will send no further change of a record that matters to the
// bridge. An old record that an earlier agent left unfinished is final too.
func Final(now time.Time, r *api.Record) bool {
	limit := EventMaxAge
	if !processesGone(r) {
		limit = undyingMaxAge
	}
	return r.Complete || r.Outcome != api.OutcomeRunning && now.Sub(r.Began.Time) > limit
}

// released reports whether the node has released all resources of the victim that its replacement
// may need, or whether the wait for that has ended. at is when that wait ends; zero: unknown.
func released(now time.Time, r *api.Record, pod *v1.Pod) (done bool, at time.Time) {
	switch {
	case r.Cleaned.Known(), r.Emptied.Known() && !holdsSandboxResources(pod):
		return true, time.Time{}
	case !processesGone(r):
		return false, time.Time{}
	}
	at = r.Emptied.Time
	if at.IsZero() {
		at = r.Began.Time
	}
	at = at.Add(SandboxTimeout)
	return reached(now, at, SandboxTimeout), at
}

// reached reports whether at has passed. A time more than maxAhead in the future counts as passed:
// the clock was set back after at was set.
func reached(now, at time.Time, maxAhead time.Duration) bool {
	return !now.Before(at) || at.Sub(now) > maxAhead
}

// kubeletDeadline returns the time until which a reverted status is left to the kubelet.
func kubeletDeadline(r *api.Record, failedAt time.Time) time.Time {
	at := r.EndBegan().Time
	if failedAt.After(at) {
		at = failedAt
	}
	return at.Add(KubeletGrace)
}

// recordID returns the ID of the record for which the pod was set to Failed; empty: it was not.
func recordID(pod *v1.Pod) string {
	id, _, _ := strings.Cut(pod.Annotations[Annotation], restoreSeparator)
	return id
}

// unknownContainer stands for a container with unknown name.
const unknownContainer = "(unknown)"

// restartedContainer returns a container that started after the whole pod had ended, according to
// the agent or the pod's status; empty: none.
func restartedContainer(r *api.Record, pod *v1.Pod) string {
	at := endTime(r)
	name := startedAfter(pod, at)
	if name == "" && r.Restarted.After(at) {
		name = unknownContainer
	}
	return name
}

// endTime returns when the victim's last process ended or, until that is known, when its end began;
// zero: unknown. A container that the kubelet restarts while others are still being stopped ends
// with them.
func endTime(r *api.Record) time.Time {
	if r.Emptied.Known() {
		return r.Emptied.Time
	}
	return r.EndBegan().Time
}

// startedAfter returns a container of the pod that started after at, according to its status;
// empty: none. Times in a status are in whole seconds. A container that started in the second of
// the kill counts as killed: a leaking container often restarts and leaks within a second.
func startedAfter(pod *v1.Pod, at time.Time) string {
	if at.IsZero() {
		return ""
	}
	after := func(s *v1.ContainerState) bool {
		return s.Running != nil && s.Running.StartedAt.Unix() > at.Unix() || s.Terminated != nil &&
			s.Terminated.StartedAt.Unix() > at.Unix()
	}
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses,
		pod.Status.ContainerStatuses} {
		for i := range list {
			if c := &list[i]; after(&c.State) || after(&c.LastTerminationState) {
				return c.Name
			}
		}
	}
	return ""
}

// holdsSandboxResources reports whether the pod holds host ports or devices until its sandbox has
// ended. If the pod was Failed earlier, the scheduler would assign these resources twice. The
// sandbox's network forwards the host ports. Memory, CPU and listening sockets are free once no
// process is left. It returns true if the containers are unknown.
func holdsSandboxResources(pod *v1.Pod) bool {
	s := &pod.Spec
	if len(s.Containers) == 0 {
		return true
	}
	needs := func(c v1.Container) bool {
		return !s.HostNetwork && slices.ContainsFunc(c.Ports,
			func(p v1.ContainerPort) bool { return p.HostPort != 0 }) ||
			hasDevices(c.Resources.Requests) || hasDevices(c.Resources.Limits)
	}
	return slices.ContainsFunc(s.Containers, needs) || slices.ContainsFunc(s.InitContainers, needs)
}

// hasResourceClaims reports whether the pod has devices through resource claims. The devices of a
// failed pod are assigned to another pod immediately (pkg/controller/resourceclaim/controller.go
// syncClaim). So its kubelet reports the failure only after releasing them
// (pkg/kubelet/kubelet_pods.go PodMightNeedToUnprepareResources, v1.36.3), and no other client may
// report it.
func hasResourceClaims(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// failsAtItsEnd reports whether the pod is set to Failed as soon as no process is left. Otherwise the
// kubelet may report it as Failed before.
func failsAtItsEnd(pod *v1.Pod) bool { return !holdsSandboxResources(pod) && !hasResourceClaims(pod) }

// hasDevices reports whether the list has a resource of a device plugin or driver: their names
// contain a domain.
func hasDevices(l v1.ResourceList) bool {
	for name := range l {
		if strings.Contains(string(name), "/") {
			return true
		}
	}
	return false
}
