package admit

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// resourceOrder is the order of resources in reports and needs. All others follow by name.
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

// choose returns victims that meet the needs (pkg/kubelet/preemption/preemption.go
// getPodsToPreempt), greedily: few Guaranteed pods that suffice together with all others, then few
// Burstable pods that suffice together with the chosen Guaranteed pods and all BestEffort pods, then
// BestEffort pods for the rest. If all pods together do not suffice, it returns no victims and the
// missing amounts.
func choose(needs []Need, bestEffort, burstable, guaranteed []*Held) (victims []*Held,
	missing []Need) {
	missing = remainingNeeds(needs, slices.Concat(bestEffort, burstable, guaranteed))
	if len(missing) > 0 {
		return nil, missing
	}
	g := pickNearest(remainingNeeds(needs, slices.Concat(bestEffort, burstable)), guaranteed)
	bu := pickNearest(remainingNeeds(needs, slices.Concat(bestEffort, g)), burstable)
	be := pickNearest(remainingNeeds(needs, slices.Concat(bu, g)), bestEffort)
	victims = slices.Concat(be, bu, g)
	// pickNearest is greedy, so later victims may make earlier ones unnecessary. Guaranteed pods are
	// removed first, then Burstable ones.
	for i := len(victims) - 1; i >= 0; i-- {
		if rest := slices.Concat(victims[:i], victims[i+1:]); len(remainingNeeds(needs, rest)) == 0 {
			victims = rest
		}
	}
	return victims, nil
}

// pickNearest repeatedly picks the pod that leaves the smallest needs, until they are met
// (getPodsToPreemptByDistance). Of equal pods it picks the one with the smaller memory request,
// then the smaller cpu request, then the youngest. The caller ensures that the pods suffice.
func pickNearest(needs []Need, pods []*Held) (out []*Held) {
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
		needs = remainingNeeds(needs, pods[best:best+1])
		pods = slices.Delete(pods, best, best+1)
	}
	return out
}

// smaller reports whether a requests less than b, by memory and then cpu (smallerResourceRequest).
func smaller(a, b *Held) bool {
	return cmp.Or(cmp.Compare(a.frees(v1.ResourceMemory), b.frees(v1.ResourceMemory)),
		cmp.Compare(a.frees(v1.ResourceCPU), b.frees(v1.ResourceCPU))) < 0
}

// distance measures the needs that remain without a pod: the sum of the squares of the remaining
// shares, so that each need has the same weight (admissionRequirementList.distance).
func distance(needs []Need, h *Held) (sum float64) {
	for _, n := range needs {
		if left := n.Amount - h.frees(n.Resource); left > 0 {
			share := float64(left) / float64(n.Amount)
			sum += share * share
		}
	}
	return sum
}

// remainingNeeds returns the needs that remain without these pods.
func remainingNeeds(needs []Need, pods []*Held) (out []Need) {
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

// contributing returns the pods that hold a needed resource.
func contributing(needs []Need, pods []*Held) []*Held {
	return slices.DeleteFunc(pods, func(h *Held) bool {
		return !slices.ContainsFunc(needs, func(n Need) bool { return h.frees(n.Resource) > 0 })
	})
}

// frees returns the amount of a resource that ending the pod frees.
func (h *Held) frees(name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return 1
	}
	if h.CertainRequests != nil && !h.Ending { // an ending pod frees all its requests without a kill
		return min(h.CertainRequests[name], h.Requests[name])
	}
	return h.Requests[name]
}
