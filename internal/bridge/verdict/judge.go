package verdict

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// Annotation of a pod that names the record of its eviction. It makes the kubelet take the patch
// for an update of the pod and not of its status alone: then its pod worker tears the pod down and
// never starts it again (pkg/kubelet/kubelet.go HandlePodReconcile, pkg/kubelet/pod_workers.go
// UpdatePod, v1.36.3). A status alone it would overwrite.
const Annotation = api.AnnotationEvicted

// Words of a pod's status. The first is the kubelet's (pkg/kubelet/eviction/helpers.go Reason,
// v1.36.3).
const (
	ReasonEvicted = "Evicted"
	ReasonTarget  = "EvictionByJettison" // of the condition DisruptionTarget
	// of Ready and ContainersReady, the kubelet's for a pod that has failed
	reasonFailed = "PodFailed"
)

// mirror is the annotation of the pod that the API has for a static one: whatever its status is,
// the kubelet writes it anew.
const mirrorAnnotation = v1.MirrorPodAnnotationKey

// UncleanFor is how long a victim that is dead, and has ports of the host or devices, waits for its
// sandbox to go before it is made Failed all the same: a runtime that hangs must not keep its owner
// from making another. Until then the scheduler would hand those out twice.
const SandboxTimeout = time.Minute

// TakenBackFor is how long after the kill, and after it was made Failed, a pod that is not so any
// more is left to its kubelet. That has seen the change and tears the pod down as soon as what it
// is about with it has ended; until then it writes what it has in memory (pkg/kubelet/status
// status_manager.go syncBatch and mergePodStatus, v1.36.3), and who writes against that has the
// pod's owner make one pod after another.
const KubeletGrace = time.Minute

// Act is what is due for a record.
type Act int

// Acts.
const (
	Wait    Act = iota // nothing, until the record or the pod is another
	Done               // nothing ever again
	Hold               // nothing: the pod is as the record wants it, as long as nobody takes that back
	Mark               // the condition DisruptionTarget, for the victim is chosen
	Unmark             // that condition is False: it was not killed, or lives
	Fail               // phase Failed
	Restore            // the same again: somebody has taken it back
	// the reason may be taken away: its kubelet may have none, and be refused what it says
	Yield
)

var actNames = [...]string{"wait", "over", "held", "mark", "unmark", "fail", "mend", "yield"}

// String is the act in a word.
func (a Act) String() string { return actNames[a] }

// Verdict is what is due for a record.
type Verdict struct {
	Act    Act
	Reason string // in words; empty: nothing out of the ordinary
	// Outlived names the container of the pod that has started after the kill. Empty: none has.
	RestartedContainer string
	// At is when it is to be judged again though nothing else has changed. Zero: it need not.
	RecheckAt time.Time
}

// Judge says what is due for a record. pod is what the API has by its namespace and name; nil:
// nothing. wrote is when it was last made Failed for the record; zero: it was not, or nobody knows.
func Judge(now time.Time, r *api.Record, pod *v1.Pod, wrote time.Time) Verdict {
	if why := doneReason(r, pod); why != "" {
		return Verdict{Act: Done, Reason: why}
	}
	ours := recordID(pod) == r.ID
	if pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {
		return judgeTerminal(now, r, pod, ours, wrote)
	}
	if ours {
		if until := kubeletDeadline(r, wrote); !reached(now, until, KubeletGrace) {
			return Verdict{Act: Wait, Reason: "its kubelet is about to end it", RecheckAt: until}
		}
	}
	if name := restartedContainer(r, pod); name != "" {
		return unmark(pod, Verdict{Reason: "a container of it has started since: it lives", RestartedContainer: name})
	}
	if Abandoned(r) {
		return unmark(pod, Verdict{Reason: "it was not killed"})
	}
	done, at := released(now, r, pod)
	if done && !ours && hasResourceClaims(pod) {
		return Verdict{Act: Done,
			Reason: "it has devices by claims, which its kubelet has to put away before it has failed"}
	}
	switch {
	case done && ours:
		return Verdict{Act: Restore, Reason: "the phase was taken back"}
	case done:
		return Verdict{Act: Fail}
	case r.Disruption && !hasDisruptionTarget(pod):
		return Verdict{Act: Mark, RecheckAt: at}
	}
	return Verdict{Act: Wait, RecheckAt: at}
}

// closed says why nothing is ever due for a record; empty: something may be.
func doneReason(r *api.Record, pod *v1.Pod) string {
	switch {
	case r.DryRun || r.Outcome == api.OutcomeDryRun:
		return "nothing was done to it"
	case pod == nil:
		return "it is gone"
	case string(pod.UID) != r.Pod.UID:
		return "another pod has its name"
	case pod.Annotations[mirrorAnnotation] != "":
		return "it is a static pod's mirror"
	case pod.DeletionTimestamp != nil:
		return "it is being deleted"
	}
	return ""
}

// taken is of a pod that lives: its condition is taken back where it is the bridge's.
func unmark(pod *v1.Pod, v Verdict) Verdict {
	v.Act = Done
	if c := condition(pod, v1.DisruptionTarget); c != nil && c.Status == v1.ConditionTrue &&
		c.Reason == ReasonTarget {
		v.Act = Unmark
	}
	return v
}

// targeted tells that somebody has said already that the pod is about to be disrupted.
func hasDisruptionTarget(pod *v1.Pod) bool {
	c := condition(pod, v1.DisruptionTarget)
	return c != nil && c.Status == v1.ConditionTrue
}

// Abandoned tells that the victim lives, and that the agent has let go of it.
func Abandoned(r *api.Record) bool {
	return !processesGone(r) && (r.Outcome == api.OutcomeAbandoned || r.Outcome == api.OutcomeUndying)
}

// dead tells that no process of the victim is left.
func processesGone(r *api.Record) bool {
	return r.Emptied.Known() || r.Cleaned.Known() || r.Outcome == api.OutcomeBack ||
		r.Outcome == api.OutcomeNotBack
}

// Final tells that the agent will say nothing more of an eviction that matters here. An old record
// that an agent before this one left as it was is final, too.
func Final(now time.Time, r *api.Record) bool {
	return r.Over || r.Outcome != api.OutcomeRunning && now.Sub(r.Began.Time) > EventMaxAge
}

// gone tells that nothing of the victim is left on the node that its next pod could be in want of,
// or that it is waited for no longer. at is when that will be so; zero: nobody knows.
func released(now time.Time, r *api.Record, pod *v1.Pod) (gone bool, at time.Time) {
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

// passed tells that an instant has, which was to come within a while when it was set: a clock that
// was set back since does not put it off.
func reached(now, at time.Time, within time.Duration) bool {
	return !now.Before(at) || at.Sub(now) > within
}

// takenBackUntil is when a pod is no longer left to its kubelet; in the past: at no time is it.
func kubeletDeadline(r *api.Record, wrote time.Time) time.Time {
	at := r.EndBegan().Time
	if wrote.After(at) {
		at = wrote
	}
	return at.Add(KubeletGrace)
}

// record is the ID of the record for which a pod was made Failed; empty: it was not.
func recordID(pod *v1.Pod) string {
	id, _, _ := strings.Cut(pod.Annotations[Annotation], restoreSeparator)
	return id
}

// someContainer stands for one whose name nobody knows.
const unknownContainer = "(unknown)"

// outlived names a container of the pod that has started after the end of all that ran, as the
// agent or its status tells; empty: none has.
func restartedContainer(r *api.Record, pod *v1.Pod) string {
	at := endTime(r)
	name := startedAfter(pod, at)
	if name == "" && r.Restarted.After(at) {
		name = unknownContainer
	}
	return name
}

// end is when nothing of the victim was left; until that is known, when its end began: zero where
// nobody knows that either. A container that its kubelet starts anew while others of the pod are
// still being stopped ends with these.
func endTime(r *api.Record) time.Time {
	if r.Emptied.Known() {
		return r.Emptied.Time
	}
	return r.EndBegan().Time
}

// startedAfter names a container of the pod that has started after an instant; empty: none has, as
// far as its status tells. A status has whole seconds: what started within the second of the kill
// counts as killed, for the one that is evicted most often starts anew and leaks at once.
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

// needsSandbox tells that a pod has something of its node until its sandbox has ended, which a
// scheduler would hand out twice if the pod was Failed before: ports of the host, which the network
// of a sandbox forwards, or devices. Memory, processor time and what processes listen on are free
// once no process is left. Of a pod whose containers were not kept nobody knows.
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

// claims tells that a pod has devices by resource claims. Of one that has failed they are given to
// another pod at once (pkg/controller/resourceclaim/controller.go syncClaim), and so its kubelet
// says that only when it has put them away (pkg/kubelet/kubelet_pods.go
// PodMightNeedToUnprepareResources, v1.36.3): nobody else may say it.
func hasResourceClaims(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// devices tells that there is something among resources that is no share of the machine's own: what
// a device plugin or a driver gives out has a name with a domain.
func hasDevices(l v1.ResourceList) bool {
	for name := range l {
		if strings.Contains(string(name), "/") {
			return true
		}
	}
	return false
}
