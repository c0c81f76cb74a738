package deschedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/cluster/model"
)

// failedPods evicts pods that have failed, node by node.
func failedPods(r *run, args any) {
	a := args.(*RemoveFailedPodsArgs)
	selects := a.filter()
nodes:
	for _, n := range r.nodes {
		for _, p := range candidatesOn(n, func(p *model.Pod) bool {
			return p.Status.Phase == v1.PodFailed && selects(p)
		}) {
			why := a.matchReason(p, r.now)
			if why == "" || !r.evictable(p) || !r.preEvictable(p) {
				continue
			}
			switch r.evict(&proposal{pod: p, reason: why}) {
			case totalLimitReached:
				return
			case nodeLimitReached:
				continue nodes
			}
		}
	}
}

// matchReason returns why a failed pod matches the arguments; empty: it does not. Ages are in
// whole seconds; a pod created in the future has age 0.
func (a *RemoveFailedPodsArgs) matchReason(p *model.Pod, now time.Time) string {
	why := []string{"failed"}
	if least := a.MinPodLifetimeSeconds; least != nil {
		age := max(now.Sub(p.CreationTimestamp.Time), 0)
		if *least > 0 && p.CreationTimestamp.IsZero() || uint(age.Seconds()) < *least {
			return ""
		}
		why = append(why, fmt.Sprintf("age %v >= minPodLifetimeSeconds %v", age.Truncate(time.Second),
			time.Duration(*least)*time.Second))
	}
	if hasOwnerKind(p, a.ExcludeOwnerKinds) {
		return ""
	}
	containers := statuses(p, a.IncludingInitContainers, false)
	if len(a.Reasons) > 0 {
		reason := waitingReason(containers, a.Reasons)
		if reason == "" {
			reason = terminatedReason(containers, a.Reasons)
		}
		if reason == "" && slices.Contains(a.Reasons, p.Status.Reason) {
			reason = p.Status.Reason
		}
		if reason == "" {
			return ""
		}
		why = append(why, "reason "+reason)
	}
	if len(a.ExitCodes) > 0 {
		t := terminatedWith(containers, a.ExitCodes)
		if t == nil {
			return ""
		}
		why = append(why, fmt.Sprintf("exit code %d", t.ExitCode))
	}
	return strings.Join(why, ", ")
}
