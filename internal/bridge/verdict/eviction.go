package verdict

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
)

// Annotation of a pod that names the record of its eviction. It makes the kubelet take the patch for an update of the pod and not of its
// status alone: then its pod worker tears the pod down and never starts it again (pkg/kubelet/kubelet.go HandlePodReconcile,
// pkg/kubelet/pod_workers.go UpdatePod, v1.36.3). A status alone it would overwrite.
const Annotation = api.AnnotationEvicted

// Words of a pod's status. The first is the kubelet's (pkg/kubelet/eviction/helpers.go Reason, v1.36.3).
const (
	ReasonEvicted = "Evicted"
	ReasonTarget  = "EvictionByJettison" // of the condition DisruptionTarget
	reasonFailed  = "PodFailed"          // of Ready and ContainersReady, the kubelet's for a pod that has failed
)

// mirror is the annotation of the pod that the API has for a static one: whatever its status is, the kubelet writes it anew.
const mirror = v1.MirrorPodAnnotationKey

// UncleanFor is how long a victim that is dead, and has ports of the host or devices, waits for its sandbox to go before it is made Failed
// all the same: a runtime that hangs must not keep its owner from making another. Until then the scheduler would hand those out twice.
const UncleanFor = time.Minute

// TakenBackFor is how long after the kill, and after it was made Failed, a pod that is not so any more is left to its kubelet. That has
// seen the change and tears the pod down as soon as what it is about with it has ended; until then it writes what it has in memory
// (pkg/kubelet/status status_manager.go syncBatch and mergePodStatus, v1.36.3), and who writes against that has the pod's owner make one
// pod after another.
const TakenBackFor = time.Minute

// Act is what is due for a record.
type Act int

// Acts.
const (
	Wait   Act = iota // nothing, until the record or the pod is another
	Over              // nothing ever again
	Held              // nothing: the pod is as the record wants it, as long as nobody takes that back
	Mark              // the condition DisruptionTarget, for the victim is chosen
	Unmark            // that condition is False: it was not killed, or lives
	Fail              // phase Failed
	Mend              // the same again: somebody has taken it back
	Yield             // the reason may be taken away: its kubelet may have none, and be refused what it says
)

var acts = [...]string{"wait", "over", "held", "mark", "unmark", "fail", "mend", "yield"}

// String is the act in a word.
func (a Act) String() string { return acts[a] }

// Verdict is what is due for a record.
type Verdict struct {
	Act Act
	Why string // in words; empty: nothing out of the ordinary
	// Outlived names the container of the pod that has started after the kill. Empty: none has.
	Outlived string
	// At is when it is to be judged again though nothing else has changed. Zero: it need not.
	At time.Time
}

// Judge says what is due for a record. pod is what the API has by its namespace and name; nil: nothing. wrote is when it was last made
// Failed for the record; zero: it was not, or nobody knows.
func Judge(now time.Time, r *api.Record, pod *v1.Pod, wrote time.Time) Verdict {
	if why := closed(r, pod); why != "" {
		return Verdict{Act: Over, Why: why}
	}
	ours := record(pod) == r.ID
	if pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {
		return judgeTerminal(now, r, pod, ours, wrote)
	}
	if until := takenBackUntil(r, wrote); ours && !passed(now, until, TakenBackFor) {
		return Verdict{Act: Wait, Why: "its kubelet is about to end it", At: until}
	}
	if name := outlived(r, pod); name != "" {
		return taken(pod, Verdict{Why: "a container of it has started since: it lives", Outlived: name})
	}
	if Abandoned(r) {
		return taken(pod, Verdict{Why: "it was not killed"})
	}
	done, at := gone(now, r, pod)
	if done && !ours && claims(pod) {
		return Verdict{Act: Over, Why: "it has devices by claims, which its kubelet has to put away before it has failed"}
	}
	switch {
	case done && ours:
		return Verdict{Act: Mend, Why: "the phase was taken back"}
	case done:
		return Verdict{Act: Fail}
	case r.Disruption && !targeted(pod):
		return Verdict{Act: Mark, At: at}
	}
	return Verdict{Act: Wait, At: at}
}

// closed says why nothing is ever due for a record; empty: something may be.
func closed(r *api.Record, pod *v1.Pod) string {
	switch {
	case r.DryRun || r.Outcome == api.OutcomeDryRun:
		return "nothing was done to it"
	case pod == nil:
		return "it is gone"
	case string(pod.UID) != r.Pod.UID:
		return "another pod has its name"
	case pod.Annotations[mirror] != "":
		return "it is a static pod's mirror"
	case pod.DeletionTimestamp != nil:
		return "it is being deleted"
	}
	return ""
}

// judgeTerminal is of a pod that runs no more. One that came to that without the bridge stays as it is.
func judgeTerminal(now time.Time, r *api.Record, pod *v1.Pod, ours bool, wrote time.Time) Verdict {
	s := &pod.Status
	switch {
	case !ours:
		return Verdict{Act: Over, Why: "it has ended already"}
	case s.Phase == v1.PodSucceeded:
		return Verdict{Act: Over, Why: "it has succeeded"}
	case s.Reason == "" && lastWord(pod):
		return Verdict{Act: Held}
	case s.Reason == "" || s.Reason == reasonOf(r) && s.Message == "" && r.Message != "":
		return Verdict{Act: Mend, Why: "the reason was lost"}
	case s.Reason == reasonOf(r) && pod.Annotations[Annotation] == r.ID && mayBeRefused(pod):
		// Policy jettison-evicted refuses what its kubelet says without a reason, and that it has succeeded. One that ends it now has the
		// API's word in its next one; one that had ended it by then has no next word (pkg/kubelet/kubelet.go SyncTerminatedPod, v1.36.3).
		if at := takenBackUntil(r, wrote); !passed(now, at, TakenBackFor) {
			return Verdict{Act: Held, At: at}
		}
		return Verdict{Act: Yield, Why: "its kubelet may have ended it before, and be refused to say so"}
	}
	// Another reason is its kubelet's, which has evicted it, too, or ended it for something else, and goes by that.
	return Verdict{Act: Held}
}

// mayBeRefused tells that a pod's kubelet may have ended it by itself before it heard of the eviction, and so have no reason for it in its
// last word, or that it has succeeded: it has not told how the containers ended, or that all ended well; or it has told, as it does two
// seconds before it says that the pod ended (pkg/kubelet/status/status_manager.go mergePodStatus, v1.36.3), and the pod is one that ends by
// itself.
func mayBeRefused(pod *v1.Pod) bool {
	return endOf(pod) != Badly || EndsByItself(pod)
}

// EndsByItself tells that a pod's containers, or one of them, may end and not be started anew: its kubelet says then that it has ended.
// Nobody knows of one whose containers were not kept.
func EndsByItself(pod *v1.Pod) bool {
	rules := func(c v1.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy != v1.ContainerRestartPolicyAlways
	}
	spec := &pod.Spec
	return spec.RestartPolicy != v1.RestartPolicyAlways || len(spec.Containers) == 0 ||
		slices.ContainsFunc(spec.Containers, rules) || slices.ContainsFunc(spec.InitContainers, rules)
}

// lastWord tells that a pod's kubelet has said the last word of it, and will write it every ten seconds over whoever gives it a reason:
// all containers ended well, as after a gentle stop (pkg/kubelet/kubelet_pods.go generateAPIPodStatus, v1.36.3), or it was given one
// before, and none runs: those that wait never start where what was to run before them failed.
func lastWord(pod *v1.Pod) bool {
	end := endOf(pod)
	return end == Well || (end == Badly || end == Waits) && strings.Contains(pod.Annotations[Annotation], mends)
}

// End is how a container, or a pod, has ended.
type End int

// Ends, of which the last counts for a pod.
const (
	Unknown End = iota // there are no containers
	Well               // with exit code 0
	Badly
	Waits // it has not started, or waits to start anew, as far as that is told
	Open  // it runs, as far as that is told
)

// EndOf is how a container has ended.
func EndOf(s *v1.ContainerStatus) End {
	switch {
	case s.State.Running != nil:
		return Open
	case s.State.Terminated == nil:
		return Waits
	case s.State.Terminated.ExitCode != 0:
		return Badly
	}
	return Well
}

func endOf(pod *v1.Pod) (end End) {
	for i := range pod.Status.ContainerStatuses {
		end = max(end, EndOf(&pod.Status.ContainerStatuses[i]))
	}
	return end
}

// taken is of a pod that lives: its condition is taken back where it is the bridge's.
func taken(pod *v1.Pod, v Verdict) Verdict {
	v.Act = Over
	if c := condition(pod, v1.DisruptionTarget); c != nil && c.Status == v1.ConditionTrue && c.Reason == ReasonTarget {
		v.Act = Unmark
	}
	return v
}

// reasonOf is that of the pod's status: Evicted, or Preempting where it went for a critical pod.
func reasonOf(r *api.Record) string { return cmp.Or(r.StatusReason, ReasonEvicted) }

// targeted tells that somebody has said already that the pod is about to be disrupted.
func targeted(pod *v1.Pod) bool {
	c := condition(pod, v1.DisruptionTarget)
	return c != nil && c.Status == v1.ConditionTrue
}

// Abandoned tells that the victim lives, and that the agent has let go of it.
func Abandoned(r *api.Record) bool {
	return !dead(r) && (r.Outcome == api.OutcomeAbandoned || r.Outcome == api.OutcomeUndying)
}

// dead tells that no process of the victim is left.
func dead(r *api.Record) bool {
	return r.Emptied.Known() || r.Cleaned.Known() || r.Outcome == api.OutcomeBack || r.Outcome == api.OutcomeNotBack
}

// Final tells that the agent will say nothing more of an eviction that matters here. An old record that an agent before this one left as
// it was is final, too.
func Final(now time.Time, r *api.Record) bool {
	return r.Over || r.Outcome != api.OutcomeRunning && now.Sub(r.Began.Time) > EventsFor
}

// gone tells that nothing of the victim is left on the node that its next pod could be in want of, or that it is waited for no longer. at
// is when that will be so; zero: nobody knows.
func gone(now time.Time, r *api.Record, pod *v1.Pod) (gone bool, at time.Time) {
	switch {
	case r.Cleaned.Known(), r.Emptied.Known() && !needsSandbox(pod):
		return true, time.Time{}
	case !dead(r):
		return false, time.Time{}
	}
	at = r.Emptied.Time
	if at.IsZero() {
		at = r.Began.Time
	}
	at = at.Add(UncleanFor)
	return passed(now, at, UncleanFor), at
}

// passed tells that an instant has, which was to come within a while when it was set: a clock that was set back since does not put it off.
func passed(now, at time.Time, within time.Duration) bool {
	return !now.Before(at) || at.Sub(now) > within
}

// takenBackUntil is when a pod is no longer left to its kubelet; in the past: at no time is it.
func takenBackUntil(r *api.Record, wrote time.Time) time.Time {
	at := r.EndBegan().Time
	if wrote.After(at) {
		at = wrote
	}
	return at.Add(TakenBackFor)
}

func condition(pod *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}
