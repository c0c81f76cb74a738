package admit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/stats"
)

// Texts for the status of a victim (pkg/kubelet/preemption/preemption.go evictPodsToFreeRequests).
// The victim's phase becomes Failed, and its condition DisruptionTarget becomes True with the
// reason TerminationByKubelet.
const (
	ReasonPreempting        = "Preempting"
	PreemptedMessage        = "Preempted in order to admit critical pod"
	PreemptedDisruptionText = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// preemptionFailed is the prefix of the message after a failed preemption
// (pkg/kubelet/lifecycle/predicate.go).
const preemptionFailed = "Unexpected error while attempting to recover from admission failure: preemption: "

// Need is an amount of a resource, in the units of Amounts. For the resource pods, Amount is the
// number of pods.
type Need struct {
	Resource v1.ResourceName
	Amount   int64
}

// Plan lists the pods that must end before a critical pod fits. The zero value is empty.
type Plan struct {
	Needs []Need
	// Victims lists the pods to kill, in the order BestEffort, Burstable, Guaranteed. The set is
	// minimal: the pod would not fit without one of these kills.
	Victims []Held
	// Awaited lists pods that are already being killed. Their resources are free once they have
	// ended.
	Awaited []Held
}

// Empty reports whether the plan has no pod to kill and none to wait for.
func (p *Plan) Empty() bool { return len(p.Victims)+len(p.Awaited) == 0 }

// Preempt decides on a pod like Admit, and plans the preemption for a critical pod that is rejected
// only because resources are missing.
//
// With a plan, the result is Admit's rejection, and Outcome decides after the kills. With an empty
// plan, the result is final: the pod is admitted, or it is not critical, or it is rejected for a
// reason that no kill removes, or all preemptible pods together do not free enough.
func Preempt(p PodAttributes, n NodeState) (Plan, Result) {
	found := Failures(p, n)
	result := first(found)
	if result.Admit || slices.ContainsFunc(found, func(f Failure) bool { return f.Short == nil }) {
		return Plan{}, result
	}
	preemptor := HeldBy(p)
	if !preemptor.Critical() {
		return Plan{}, result
	}
	var plan Plan
	for i := range found {
		plan.Needs = append(plan.Needs, found[i].Short.need())
	}
	byClass, awaited := map[stats.QOSClass][]*Held{}, []*Held(nil)
	for i := range n.Pods {
		switch h := &n.Pods[i]; {
		case preemptor.UID != "" && h.UID == preemptor.UID:
		case h.Ending:
			awaited = append(awaited, h)
		case preemptor.mayPreempt(h):
			byClass[h.QOS] = append(byClass[h.QOS], h)
		}
	}
	left := remainingNeeds(plan.Needs, awaited)
	victims, missing := choose(left, byClass[stats.BestEffort], byClass[stats.Burstable],
		byClass[stats.Guaranteed])
	if len(missing) > 0 {
		return Plan{}, Result{Reason: ReasonUnexpected, Message: preemptionFailed +
			"error finding a set of pods to preempt: " +
			"no set of running pods found to reclaim resources: " + needsText(missing)}
	}
	plan.Victims, plan.Awaited = values(victims), values(contributing(plan.Needs, awaited))
	return plan, result
}

// Failed returns the rejection after an error that prevented all kills of the plan.
func (p *Plan) Failed(why error) Result {
	return Result{Reason: ReasonUnexpected, Message: preemptionFailed + why.Error()}
}

func values(list []*Held) (out []Held) {
	for _, h := range list {
		out = append(out, *h)
	}
	return out
}

// mayPreempt reports whether a critical pod may preempt another (pkg/kubelet/types/pod_update.go
// Preemptable): the victim is not critical, or its priority is known and lower. The kubelet would
// also kill a static pod of lower priority, which its manifest recreates.
func (h *Held) mayPreempt(victim *Held) bool {
	if victim.Static || victim.Protected {
		return false
	}
	// A critical victim that is not static has a priority. The priority of a static h may be unknown,
	// which is below those of all critical pods.
	return !victim.Critical() || h.Priority.V > victim.Priority.V
}

// needsText formats needs like the kubelet (admissionRequirementList.toString).
func needsText(needs []Need) string {
	var b strings.Builder
	for _, n := range needs {
		fmt.Fprintf(&b, "(res: %s, q: %d), ", n.Resource, n.Amount)
	}
	return "[" + b.String() + "]"
}

// Kill is the result of killing one victim.
type Kill struct {
	UID types.UID
	// Error is the reason why the pod is not dead or its resources are not free; empty: success.
	Error string
}

// Outcome decides on the pod after the kills of its plan, by the state of the node after them. The
// pod is admitted only if it fits. A victim with a failed or unreported kill still holds its
// resources, even if the state does not contain it. If such victims cause the rejection, the
// message names each of them with the error.
func (p *Plan) Outcome(pod PodAttributes, after NodeState, kills []Kill) Result {
	var alive []string
	pods := slices.Clone(after.Pods)
	for i := range p.Victims {
		v := &p.Victims[i]
		why := "its kill has not finished"
		if at := slices.IndexFunc(kills, func(k Kill) bool { return k.UID == v.UID }); at >= 0 {
			why = kills[at].Error
		}
		if why == "" {
			continue
		}
		alive = append(alive, fmt.Sprintf("pod %s/%s was not killed: %s", v.Namespace, v.Name, why))
		if !after.hasPod(v.UID) {
			pods = append(pods, *v)
		}
	}
	after.Pods = pods
	found := Failures(pod, after)
	if len(alive) > 0 && len(found) > 0 && found[0].Short != nil {
		return Result{Reason: ReasonUnexpected, Message: preemptionFailed + strings.Join(alive, "; ")}
	}
	return first(found)
}
