package deschedule

import (
	"cmp"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/model"
)

// Texts of limits are those of 0.36.0 (pkg/descheduler/evictions/errors.go), which uses them as
// metric labels.
const (
	limitTotal     = "maximum number of evicted pods per a descheduling cycle reached"
	limitNode      = "maximum number of evicted pods per node reached"
	limitNamespace = "maximum number of evicted pods per namespace reached"
)

// outcome is the result of a proposed eviction.
type outcome int

const (
	podKept           outcome = iota // the pod stays; try the next one
	podEvicted                       // the pod is evicted
	nodeLimitReached                 // the pod and all others on its node stay
	totalLimitReached                // the pod and all others stay
)

// proposal is an eviction that a strategy requests.
type proposal struct {
	pod     *model.Pod
	reason  string
	against []string
	// improves reports whether the strategy gains if the replacement runs on node to; nil: the pod
	// must leave its node. If the scheduler would not choose such a node, the pod stays, with noGain
	// as the reason.
	improves func(to *model.Node) bool
	noGain   string
	hint     string // added to reasons about the scheduler's choice
	// rank orders equally scored nodes that are an improvement: the lowest is best; nil: by name.
	rank func(to *model.Node) int
	// hard: the pod violates a hard rule, so earlier moves of its owner do not matter.
	hard bool
	// explain sets reason and against lazily, only for an eviction that happens; nil: both are
	// set.
	explain func(*proposal)
}

// maxAgainst limits the nodes or domains listed in Eviction.Against.
const maxAgainst = 10

// addAgainst adds the first maxAgainst of count lines to against, and how many more there are.
func (w *proposal) addAgainst(count int, line func(i int) string) {
	for i := range min(count, maxAgainst) {
		w.against = append(w.against, line(i))
	}
	if count > maxAgainst {
		w.against = append(w.against, fmt.Sprintf("and %d more", count-maxAgainst))
	}
}

// evictionLoop is the reason for keeping a pod if a strategy would evict its replacement again.
const evictionLoop = "eviction loop: %s would evict the replacement pod again"

// evict carries out a proposal in the model unless a limit, a budget or the placement forbids it.
func (r *run) evict(w *proposal) outcome {
	pod := w.pod
	key := pod.Key()
	if pod.Replaces == nil {
		r.noteProposal(key)
	}
	if strategy, ok := r.planner.pinned[key]; ok {
		return r.skip(pod, evictionLoop, strategy)
	}
	var to *model.Node
	if w.improves != nil {
		var why string
		if to, why = r.moveTarget(w); to == nil {
			return r.skip(pod, "%s", why)
		}
	}
	if pod.Replaces != nil {
		// The replacement would be evicted, and so would its own replacement.
		r.pin(pod.Replaces.Key(), r.strategy)
		r.replan = true
		r.restoreOriginal(pod)
		return podKept
	}
	if out := r.checkLimits(pod); out != podEvicted {
		return out
	}
	if blocked := r.budgets.Spend(pod.Pod); blocked != "" {
		return r.skip(pod, "%s", blocked)
	}
	if w.explain != nil {
		w.explain(w)
	}
	r.countEviction(pod)
	var moves []PastMove
	if w.improves == nil {
		to = r.cluster.Place(pod, r.schedulers.of(pod.Pod))
	} else if !w.hard {
		moves = r.pastMoves(pod)
	}
	replacement := r.replacement(pod, to)
	r.planner.evictions = append(r.planner.evictions, Eviction{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Node: pod.Spec.NodeName,
		Profile: r.profile.Name, Strategy: r.strategy,
		Reason: w.reason, Against: w.against, Pod: pod.Pod, Moves: moves,
	})
	if r.usage != nil {
		r.usage.move(pod, replacement, to)
	}
	r.cluster.Remove(pod)
	if replacement != nil {
		r.replacements[replacement.Key()] = pod.Key()
		if to != nil {
			replacement.Spec.NodeName = to.Name
			r.planner.evictions[len(r.evictions)-1].To = to.Name
		}
		r.cluster.Put(replacement, to)
	}
	return podEvicted
}

// fitsElsewhere reports whether a pod that violates a rule fits on one of the nodes other than its
// own, and records why not.
func (r *run) fitsElsewhere(p *model.Pod, nodes []*model.Node) bool {
	to, why := r.cluster.FindOther(p, nodes)
	if to == nil {
		r.skip(p, "pod fits on no other node: %s", cmp.Or(why, "the cluster has no other node"))
	}
	return to != nil
}

// restoreOriginal puts the original pod back in place of its replacement, as the next plan will
// have it. Otherwise pods that conflict only with the replacement would be pinned, too.
func (r *run) restoreOriginal(replacement *model.Pod) {
	original := replacement.Replaces
	n := r.cluster.Find(original.Spec.NodeName)
	if r.usage != nil {
		r.usage.move(replacement, original, n)
	}
	r.cluster.Remove(replacement)
	r.cluster.Put(original, n)
}

// skip records the first rule that kept a pod of the snapshot. Replacement pods are not recorded:
// they do not exist yet.
func (r *run) skip(pod *model.Pod, format string, args ...any) outcome {
	if _, ok := r.skipped[pod]; !ok && pod.Replaces == nil {
		r.skipped[pod] = fmt.Sprintf(format, args...)
		r.planner.skipOrder = append(r.planner.skipOrder, pod)
	}
	return podKept
}

// checkLimits checks the limits of the policy in the order of 0.36.0, and OwnerPause.
func (r *run) checkLimits(pod *model.Pod) outcome {
	p := r.policy
	switch {
	case p.MaxNoOfPodsToEvictTotal != nil && r.total >= *p.MaxNoOfPodsToEvictTotal:
		r.capped = true
		r.stopEarly(limitTotal)
		r.skip(pod, limitTotal)
		return totalLimitReached
	case p.MaxNoOfPodsToEvictPerNode != nil &&
		r.perNode[pod.Node.Name] >= *p.MaxNoOfPodsToEvictPerNode:
		r.capped = true
		r.skip(pod, limitNode)
		return nodeLimitReached
	case p.MaxNoOfPodsToEvictPerNamespace != nil &&
		r.perNamespace[pod.Namespace] >= *p.MaxNoOfPodsToEvictPerNamespace:
		r.capped = true
		return r.skip(pod, limitNamespace)
	}
	if pause := p.OwnerPause; pause != nil {
		for i := range pod.OwnerReferences {
			if last, ok := r.perOwner[ownerOf(pod, i)]; ok && r.now.Sub(last) < pause.Duration {
				o := &pod.OwnerReferences[i]
				r.capped = true
				return r.skip(pod, "another pod of owner %s %s was evicted less than ownerPause %v ago",
					o.Kind, o.Name, pause.Duration)
			}
		}
	}
	return podEvicted
}

func (r *run) countEviction(pod *model.Pod) {
	r.total++
	r.perNode[pod.Node.Name]++
	r.perNamespace[pod.Namespace]++
	m := evictionRecord{run: r, node: pod.Node.Name, namespace: pod.Namespace}
	for _, o := range ownersOf(pod) {
		at, known := r.perOwner[o]
		m.previous = append(m.previous, ownerEviction{o, at, known})
		r.perOwner[o] = r.now
	}
	r.planner.records = append(r.planner.records, m)
}

// replacementName returns the name of a pod's replacement. "+" is invalid in pod names, so it is
// unique.
func replacementName(name string) string { return name + replacementSuffix }

const replacementSuffix = "+next"

// replacement returns the pod that the owner creates in place of an evicted one. It returns nil for
// a pod without an owner, and for an ended pod, which was replaced before.
func (r *run) replacement(pod *model.Pod, to *model.Node) *model.Pod {
	if len(pod.OwnerReferences) == 0 || pod.Ended {
		return nil
	}
	object := *pod.Pod
	object.Name = replacementName(object.Name)
	object.UID += types.UID(replacementSuffix)
	object.CreationTimestamp, object.DeletionTimestamp = metav1.NewTime(r.now), nil
	object.Spec.NodeName = ""
	object.Status = v1.PodStatus{Phase: v1.PodRunning, QOSClass: pod.Status.QOSClass,
		StartTime: &object.CreationTimestamp}
	if to == nil {
		object.Status.Phase = v1.PodPending
	}
	out := r.cluster.NewPod(&object)
	out.Replaces = pod
	return out
}
