package admit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/stats"
)

// What is written into the status of a victim (pkg/kubelet/preemption/preemption.go
// evictPodsToFreeRequests): its phase becomes Failed, and its condition DisruptionTarget True with
// the reason TerminationByKubelet.
const (
	ReasonPreempting        = "Preempting"
	PreemptedMessage        = "Preempted in order to admit critical pod"
	PreemptedDisruptionText = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// recovering begins the message where room could not be made (pkg/kubelet/lifecycle/predicate.go).
const recovering = "Unexpected error while attempting to recover from admission failure: preemption: "

// Need is an amount of a resource, in the units of Amounts. Of pods it is a number.
type Need struct {
	Resource v1.ResourceName
	Amount   int64
}

// Plan is what must happen before a critical pod has room. The zero value: nothing.
type Plan struct {
	Needs []Need
	// Victims must be killed: BestEffort, Burstable, Guaranteed. None is there without whom the others
	// would do.
	Victims []Held
	// Awaited are being killed already; their room counts as freed, once they are gone.
	Awaited []Held
}

// Empty: there is nothing to kill and nothing to wait for.
func (p *Plan) Empty() bool { return len(p.Victims)+len(p.Awaited) == 0 }

// Preempt decides on a pod as Admit does, and plans how to make room for a critical one that is
// refused for want of room alone. With a plan the result is Admit's refusal, which holds until the
// plan is carried out; Outcome says what it came to. Without one it is final: the pod is taken, is
// not critical, is refused for something that no kill would mend, or all pods together that may go
// would not do.
func Preempt(p PodAttributes, n NodeState) (Plan, Result) {
	found := Failures(p, n)
	result := first(found)
	if result.Admit || slices.ContainsFunc(found, func(f Failure) bool { return f.Short == nil }) {
		return Plan{}, result
	}
	asking := HeldBy(p)
	if !asking.Critical() {
		return Plan{}, result
	}
	var plan Plan
	for i := range found {
		plan.Needs = append(plan.Needs, found[i].Short.need())
	}
	byClass, awaited := map[stats.QOSClass][]*Held{}, []*Held(nil)
	for i := range n.Pods {
		switch h := &n.Pods[i]; {
		case asking.UID != "" && h.UID == asking.UID:
		case h.Ending:
			awaited = append(awaited, h)
		case asking.mayPreempt(h):
			byClass[h.QOS] = append(byClass[h.QOS], h)
		}
	}
	left := without(plan.Needs, awaited)
	victims, missing := choose(left, byClass[stats.BestEffort], byClass[stats.Burstable],
		byClass[stats.Guaranteed])
	if len(missing) > 0 {
		return Plan{}, Result{Reason: ReasonUnexpected, Message: recovering +
			"error finding a set of pods to preempt: " +
			"no set of running pods found to reclaim resources: " + words(missing)}
	}
	plan.Victims, plan.Awaited = values(victims), values(helpful(plan.Needs, awaited))
	return plan, result
}

// Failed is the answer where nobody could be killed for the plan, and why.
func (p *Plan) Failed(why error) Result {
	return Result{Reason: ReasonUnexpected, Message: recovering + why.Error()}
}

func values(list []*Held) (out []Held) {
	for _, h := range list {
		out = append(out, *h)
	}
	return out
}

// mayPreempt reports whether a critical pod may have another killed
// (pkg/kubelet/types/pod_update.go Preemptable): one that is not critical, or one whose priority is
// known and lower than its own. The kubelet would kill a static pod of lower priority, too, which
// its manifest brings back.
func (h *Held) mayPreempt(victim *Held) bool {
	if victim.Static || victim.Spared {
		return false
	}
	// A critical one that is not static has a priority. A static one that asks may have none, which is
	// below all critical ones.
	return !victim.Critical() || h.Priority.V > victim.Priority.V
}

// words are the kubelet's for what is missing (admissionRequirementList.toString).
func words(needs []Need) string {
	var b strings.Builder
	for _, n := range needs {
		fmt.Fprintf(&b, "(res: %s, q: %d), ", n.Resource, n.Amount)
	}
	return "[" + b.String() + "]"
}

// Kill is what became of one victim.
type Kill struct {
	UID types.UID
	// Error says why the pod is not dead, or what it held is not back; empty: it is.
	Error string
}

// Outcome decides on the pod once its plan was carried out, on the state of the node after the
// kills: it is taken only if there is room in it. A victim whose kill failed, or of which nothing
// was reported, still has what it held, whether the state has it or not. Where that is what is in
// the way, the result names each such victim and why.
func (p *Plan) Outcome(pod PodAttributes, after NodeState, kills []Kill) Result {
	var alive []string
	pods := slices.Clone(after.Pods)
	for i := range p.Victims {
		v := &p.Victims[i]
		why := "its kill is not over"
		if at := slices.IndexFunc(kills, func(k Kill) bool { return k.UID == v.UID }); at >= 0 {
			why = kills[at].Error
		}
		if why == "" {
			continue
		}
		alive = append(alive, fmt.Sprintf("pod %s/%s was not killed: %s", v.Namespace, v.Name, why))
		if !after.there(v.UID) {
			pods = append(pods, *v)
		}
	}
	after.Pods = pods
	found := Failures(pod, after)
	if len(alive) > 0 && len(found) > 0 && found[0].Short != nil {
		return Result{Reason: ReasonUnexpected, Message: recovering + strings.Join(alive, "; ")}
	}
	return first(found)
}
