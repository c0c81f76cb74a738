package admit

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// resourceOrder is the order in which resources are reported and needed; the others follow by name.
var resourceOrder = []v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory,
	v1.ResourceEphemeralStorage}

func compareNames(a, b v1.ResourceName) int {
	place := func(n v1.ResourceName) int {
		if i := slices.Index(resourceOrder, n); i >= 0 {
			return i
		}
		return len(resourceOrder)
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
}

// choose picks who must go so that the needs are met (pkg/kubelet/preemption/preemption.go
// getPodsToPreempt): of the Guaranteed as few as do if all others went, of the Burstable as few as
// do if all BestEffort ones went beside these, and of the BestEffort the rest. missing is what not
// even all of them together would free; then nobody goes.
func choose(needs []Need, bestEffort, burstable, guaranteed []*Held) (victims []*Held,
	missing []Need) {
	if missing = without(needs, slices.Concat(bestEffort, burstable, guaranteed)); len(missing) > 0 {
		return nil, missing
	}
	g := nearest(without(needs, slices.Concat(bestEffort, burstable)), guaranteed)
	bu := nearest(without(needs, slices.Concat(bestEffort, g)), burstable)
	be := nearest(without(needs, slices.Concat(bu, g)), bestEffort)
	victims = slices.Concat(be, bu, g)
	// One by one it picks who brings the needs nearest; the later ones may do what an earlier one was
	// picked for. The best class is spared first.
	for i := len(victims) - 1; i >= 0; i-- {
		if rest := slices.Concat(victims[:i], victims[i+1:]); len(without(needs, rest)) == 0 {
			victims = rest
		}
	}
	return victims, nil
}

// nearest picks, until the needs are met, the pod that leaves the least of them
// (getPodsToPreemptByDistance). Of those that leave as much, the one that requests less memory,
// then less cpu, then the youngest. The pods suffice.
func nearest(needs []Need, pods []*Held) (out []*Held) {
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b *Held) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
	})
	for len(needs) > 0 && len(pods) > 0 {
		best, least := 0, math.Inf(1)
		for i, h := range pods {
			if d := distance(needs, h); d < least || d == least && !smaller(pods[best], h) {
				best, least = i, d
			}
		}
		out = append(out, pods[best])
		needs = without(needs, pods[best:best+1])
		pods = slices.Delete(pods, best, best+1)
	}
	return out
}

// smaller reports whether one pod requests less than another, memory before cpu. All else does not
// count (smallerResourceRequest).
func smaller(a, b *Held) bool {
	return cmp.Or(cmp.Compare(a.frees(v1.ResourceMemory), b.frees(v1.ResourceMemory)),
		cmp.Compare(a.frees(v1.ResourceCPU), b.frees(v1.ResourceCPU))) < 0
}

// distance is what remains of the needs without a pod: the sum of the squares of the shares that
// remain, so that each need weighs the same (admissionRequirementList.distance).
func distance(needs []Need, h *Held) (sum float64) {
	for _, n := range needs {
		if left := n.Amount - h.frees(n.Resource); left > 0 {
			share := float64(left) / float64(n.Amount)
			sum += share * share
		}
	}
	return sum
}

// without is what remains of the needs if these pods go.
func without(needs []Need, pods []*Held) (out []Need) {
	for _, n := range needs {
		for _, h := range pods {
			if n.Amount -= h.frees(n.Resource); n.Amount <= 0 {
				break
			}
		}
		if n.Amount > 0 {
			out = append(out, n)
		}
	}
	return out
}

// helpful are the pods whose end brings the needs nearer.
func helpful(needs []Need, pods []*Held) []*Held {
	return slices.DeleteFunc(pods, func(h *Held) bool {
		return !slices.ContainsFunc(needs, func(n Need) bool { return h.frees(n.Resource) > 0 })
	})
}

// frees is how much of a resource a pod's end gives back.
func (h *Held) frees(name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	if h.Surely != nil && !h.Ending { // what comes back anyway costs nobody more
		return min(h.Surely[name], h.Requests[name])
	}
	return h.Requests[name]
}
