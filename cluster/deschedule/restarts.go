package deschedule

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// tooManyRestarts evicts pods whose containers have been started again too often: the most often
// first, node by node.
func tooManyRestarts(r *run, args any) {
	a := args.(*TooManyRestartsArgs)
	wanted := a.filter()
nodes:
	for _, n := range r.nodes {
		var pods []*model.Pod
		for _, p := range n.Pods {
			if wanted(p) && a.restarts(p) >= int64(a.PodRestartThreshold) && a.in(p) && r.may(p) &&
				r.fits(p) {
				pods = append(pods, p)
			}
		}
		slices.SortFunc(pods, func(x, y *model.Pod) int {
			return cmp.Or(cmp.Compare(a.restarts(y), a.restarts(x)), firstToGo(x, y))
		})
		for _, p := range pods {
			why := fmt.Sprintf("%d restarts >= podRestartThreshold %d", a.restarts(p), a.PodRestartThreshold)
			switch r.evict(&wish{pod: p, reason: why}) {
			case full:
				return
			case nodeFull:
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

// in reports whether a pod is in one of the states, or none is asked for.
func (a *TooManyRestartsArgs) in(p *model.Pod) bool {
	return len(a.States) == 0 || p.Status.Phase == v1.PodRunning &&
		slices.Contains(a.States, string(v1.PodRunning)) ||
		waiting(statuses(p, a.IncludingInitContainers, false), a.States) != ""
}
