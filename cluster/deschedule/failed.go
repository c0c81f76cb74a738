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
	wanted := a.filter()
nodes:
	for _, n := range r.nodes {
		for _, p := range leaving(n, func(p *model.Pod) bool {
			return p.Status.Phase == v1.PodFailed && wanted(p)
		}) {
			why := a.why(p, r.now)
			if why == "" || !r.may(p) || !r.fits(p) {
				continue
			}
			switch r.evict(&wish{pod: p, reason: why}) {
			case full:
				return
			case nodeFull:
				continue nodes
			}
		}
	}
}

// why says what of a failed pod matches; empty: something does not. Ages are in whole seconds; a
// pod of the future has age 0.
func (a *RemoveFailedPodsArgs) why(p *model.Pod, now time.Time) string {
	why := []string{"failed"}
	if least := a.MinPodLifetimeSeconds; least != nil {
		age := max(now.Sub(p.CreationTimestamp.Time), 0)
		if *least > 0 && p.CreationTimestamp.IsZero() || uint(age.Seconds()) < *least {
			return ""
		}
		why = append(why, fmt.Sprintf("age %v >= minPodLifetimeSeconds %v", age.Truncate(time.Second),
			time.Duration(*least)*time.Second))
	}
	if ownerKind(p, a.ExcludeOwnerKinds) {
		return ""
	}
	containers := statuses(p, a.IncludingInitContainers, false)
	if len(a.Reasons) > 0 {
		reason := waiting(containers, a.Reasons)
		if reason == "" {
			reason = ended(containers, a.Reasons)
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
		t := exited(containers, a.ExitCodes)
		if t == nil {
			return ""
		}
		why = append(why, fmt.Sprintf("exit code %d", t.ExitCode))
	}
	return strings.Join(why, ", ")
}
