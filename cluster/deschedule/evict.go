package deschedule

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"jettison/cluster/model"
)

// The texts of limits are those of 0.36.0 (pkg/descheduler/evictions/errors.go), which its metrics
// have as labels.
const (
	limitTotal     = "maximum number of evicted pods per a descheduling cycle reached"
	limitNode      = "maximum number of evicted pods per node reached"
	limitNamespace = "maximum number of evicted pods per namespace reached"
)

// outcome is what became of a wish to evict.
type outcome int

const (
	kept     outcome = iota // it stays; the next one may go
	evicted                 // it goes
	nodeFull                // it stays, and so do all others on its node
	full                    // it stays, and so do all others
)

// wish is a pod that a strategy wants gone.
type wish struct {
	pod     *model.Pod
	reason  string
	against []string
	// helps says whether the strategy has what it wants if the pod's successor goes to a node; nil:
	// wherever it goes. Where no node that takes the successor helps, the pod stays, and undone is
	// why.
	helps  func(to *model.Node) bool
	undone string
	// tell fills in reason and against where that takes long: only of a pod that goes; nil: they are
	// there.
	tell func(*wish)
}

// mostAgainst is how many nodes or domains an eviction is told to have been weighed against: of
// thousands nobody reads all.
const mostAgainst = 10

// weigh tells what a wish is weighed against: the first of so many, and how many more there are.
func (w *wish) weigh(count int, line func(i int) string) {
	for i := range min(count, mostAgainst) {
		w.against = append(w.against, line(i))
	}
	if count > mostAgainst {
		w.against = append(w.against, fmt.Sprintf("and %d more", count-mostAgainst))
	}
}

// forEver is why a pod stays whose successor would be evicted again by a strategy.
const forEver = "its successor would be evicted again by %s: that would go on for ever"

// evict does what a strategy wishes, if no rule is against it.
func (r *run) evict(w *wish) outcome {
	pod := w.pod
	key := pod.Key()
	if pod.Replaces == nil {
		r.wishes(key)
	}
	if by, ok := r.planner.kept[key]; ok {
		return r.skip(pod, forEver, by)
	}
	var to *model.Node
	if w.helps != nil {
		if to = r.cluster.Place(pod, r.packing, w.helps); to == nil {
			if other, why := r.cluster.Fits(pod, r.cluster.Nodes); other == nil {
				return r.skip(pod, "no other node takes its successor: %s", why)
			}
			return r.skip(pod, "no node that takes its successor would be better: %s", w.undone)
		}
	}
	if pod.Replaces != nil {
		// The successor of one that was evicted would be evicted in its turn, and so would the next.
		r.keep(pod.Replaces.Key(), r.strategy)
		r.again = true
		r.back(pod)
		return kept
	}
	if out := r.limits(pod); out != evicted {
		return out
	}
	if refused := r.budgets.Spend(pod.Pod); refused != "" {
		return r.skip(pod, "%s", refused)
	}
	if w.tell != nil {
		w.tell(w)
	}
	r.count(pod)
	if w.helps == nil {
		to = r.cluster.Place(pod, r.packing, nil)
	}
	successor := r.successor(pod, to)
	r.planner.evictions = append(r.planner.evictions, Eviction{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Node: pod.Spec.NodeName,
		Profile: r.profile.Name, Strategy: r.strategy,
		Reason: w.reason, Against: w.against, Pod: pod.Pod,
	})
	if r.use != nil {
		r.use.move(pod, successor, to)
	}
	r.cluster.Remove(pod)
	if successor == nil && r.replicas != nil {
		r.planner.made[len(r.planner.made)-1].gone = true
		for _, o := range ownersOf(pod) {
			r.replicas[o]--
		}
	}
	if successor != nil {
		r.successors[successor.Key()] = pod.Key()
		if to != nil {
			successor.Spec.NodeName = to.Name
			r.planner.evictions[len(r.evictions)-1].To = to.Name
		}
		r.cluster.Put(successor, to)
	}
	return evicted
}

// back has a pod be where it was in the place of its successor, as it will be in the plan that is
// made anew: whoever is in nobody's way but the successor's is not kept, too.
func (r *run) back(successor *model.Pod) {
	was := successor.Replaces
	n := r.cluster.Find(was.Spec.NodeName)
	if r.use != nil {
		r.use.move(successor, was, n)
	}
	r.cluster.Remove(successor)
	r.cluster.Put(was, n)
}

// skip notes the first rule that kept a pod of the snapshot. Of a successor, which is not there
// yet, nothing is told.
func (r *run) skip(pod *model.Pod, format string, args ...any) outcome {
	if _, ok := r.skipped[pod]; !ok && pod.Replaces == nil {
		r.skipped[pod] = fmt.Sprintf(format, args...)
		r.planner.noted = append(r.planner.noted, pod)
	}
	return kept
}

// limits of the policy, in the order of 0.36.0, and the pause between evictions of one owner.
func (r *run) limits(pod *model.Pod) outcome {
	p := r.policy
	switch {
	case p.MaxNoOfPodsToEvictTotal != nil && r.total >= *p.MaxNoOfPodsToEvictTotal:
		r.capped = true
		r.stop(limitTotal)
		r.skip(pod, limitTotal)
		return full
	case p.MaxNoOfPodsToEvictPerNode != nil &&
		r.perNode[pod.Node.Name] >= *p.MaxNoOfPodsToEvictPerNode:
		r.capped = true
		r.skip(pod, limitNode)
		return nodeFull
	case p.MaxNoOfPodsToEvictPerNamespace != nil &&
		r.perNamespace[pod.Namespace] >= *p.MaxNoOfPodsToEvictPerNamespace:
		r.capped = true
		return r.skip(pod, limitNamespace)
	}
	if pause := p.OwnerPause; pause != nil && pause.Duration > 0 {
		for i := range pod.OwnerReferences {
			if last, ok := r.perOwner[ownerOf(pod, i)]; ok && r.now.Sub(last) < pause.Duration {
				o := &pod.OwnerReferences[i]
				r.capped = true
				return r.skip(pod, "another pod of its owner %s %s was evicted less than ownerPause %v ago",
					o.Kind, o.Name, pause.Duration)
			}
		}
	}
	return evicted
}

func (r *run) count(pod *model.Pod) {
	r.total++
	r.perNode[pod.Node.Name]++
	r.perNamespace[pod.Namespace]++
	m := made{run: r, node: pod.Node.Name, namespace: pod.Namespace}
	for _, o := range ownersOf(pod) {
		at, known := r.perOwner[o]
		m.owners = append(m.owners, pause{o, at, known})
		r.perOwner[o] = r.now
	}
	r.planner.made = append(r.planner.made, m)
}

// successorOf is the name of a pod's successor: no pod of a cluster is called so.
func successorOf(name string) string { return name + next }

const next = "+next"

// successor is the pod that its owner makes in the place of one that is evicted; nil: nobody does.
// A pod without an owner is not made again, and one that has ended has been already.
func (r *run) successor(pod *model.Pod, to *model.Node) *model.Pod {
	if len(pod.OwnerReferences) == 0 || pod.Ended {
		return nil
	}
	made := *pod.Pod
	made.Name = successorOf(made.Name)
	if made.UID != "" {
		made.UID += types.UID(next)
	}
	made.CreationTimestamp, made.DeletionTimestamp = metav1.NewTime(r.now), nil
	made.Spec.NodeName = ""
	made.Status = v1.PodStatus{Phase: v1.PodRunning, QOSClass: pod.Status.QOSClass,
		StartTime: &made.CreationTimestamp}
	if to == nil {
		made.Status.Phase = v1.PodPending
	}
	successor := r.cluster.Pod(&made)
	successor.Replaces = pod
	return successor
}
