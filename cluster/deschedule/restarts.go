package deschedule

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// tooManyRestarts evicts pods whose containers restarted too often, node by node, those with most
// restarts first.
func tooManyRestarts(r *run, args any) {
	a := args.(*TooManyRestartsArgs)
	selects := a.filter()
nodes:
	for _, n := range r.nodes {
		var pods []*model.Pod
		for _, p := range n.Pods {
			if selects(p) && a.restarts(p) >= int64(a.PodRestartThreshold) && a.inState(p) && r.evictable(p) {
				pods = append(pods, p)
			}
		}
		slices.SortFunc(pods, func(x, y *model.Pod) int {
			return cmp.Or(cmp.Compare(a.restarts(y), a.restarts(x)), byEvictionOrder(x, y))
		})
		for _, p := range pods {
			if !r.preEvictable(p) { // after earlier evictions
				continue
			}
			why := fmt.Sprintf("%d restarts >= podRestartThreshold %d", a.restarts(p), a.PodRestartThreshold)
			switch r.evict(&proposal{pod: p, reason: why}) {
			case totalLimitReached:
				return
			case nodeLimitReached:
				continue nodes
			}
		}
	}
}

func (a *TooManyRestartsArgs) restarts(p *model.Pod) (sum int64) {
	containers := statuses(p, a.IncludingInitContainers, false)
	for i := range containers {
		sum += int64(containers[i].RestartCount)
	}
	return sum
}

// inState reports whether a pod is in one of the states; true if no state is configured.
func (a *TooManyRestartsArgs) inState(p *model.Pod) bool {
	return len(a.States) == 0 || p.Status.Phase == v1.PodRunning &&
		slices.Contains(a.States, string(v1.PodRunning)) ||
		waitingReason(statuses(p, a.IncludingInitContainers, false), a.States) != ""
}
