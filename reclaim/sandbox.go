package reclaim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// planSandboxes follows the kubelet's evictSandboxes: it removes sandboxes that are not ready and
// have no container. For a pod that is not gone it keeps the newest sandbox in any state, and
// removes the older ones. Unlike planContainers, planSandboxes also removes sandboxes before all
// pods are known: older sandboxes, and those of evicted pods. removed holds the IDs of the
// containers that the plan removes first.
func (w *planner) planSandboxes(removed map[string]bool) {
	full := make(map[string]bool, len(w.look.Sandboxes))
	for i := range w.look.Containers {
		if c := &w.look.Containers[i]; !removed[c.ID] {
			full[c.SandboxID] = true
		}
	}
	all := make([]*Sandbox, 0, len(w.look.Sandboxes))
	for i := range w.look.Sandboxes {
		s := &w.look.Sandboxes[i]
		if s.PodUID == "" {
			w.addLeft(fmt.Sprintf("sandbox %.64q", s.ID), "it does not name its pod")
			continue
		}
		if _, gone := w.runtimeReason(s.PodUID); s.CreatedAt.IsZero() && !gone {
			if s.NotReady && !full[s.ID] {
				w.addLeft(fmt.Sprintf("sandbox %.64q", s.ID), unknownCreation)
			}
			continue
		}
		all = append(all, s)
	}
	// by pod, newest first
	slices.SortFunc(all, func(a, b *Sandbox) int {
		return cmp.Or(strings.Compare(a.PodUID, b.PodUID), olderSandbox(b, a))
	})
	over, newer := all[:0], ""
	for _, s := range all {
		_, ok := w.runtimeReason(s.PodUID)
		if ok = ok || s.PodUID == newer; ok && s.NotReady && !full[s.ID] {
			over = append(over, s)
		}
		newer = s.PodUID
	}
	w.growSteps(len(over))
	first := len(w.plan.Steps)
	for _, s := range over {
		reason, ok := w.runtimeReason(s.PodUID)
		if !ok {
			reason = NotNewest
		}
		w.plan.Steps = append(w.plan.Steps, Step{
			Action: RemoveSandbox, ID: s.ID, PodUID: s.PodUID, Name: s.Namespace + "/" + s.Name,
			Since: s.CreatedAt, Reason: reason,
			Why: sandboxReasonText[reason],
		})
	}
	slices.SortFunc(w.plan.Steps[first:], oldest)
}

// sandboxReasonText maps reasons of sandboxes to texts for people.
var sandboxReasonText = map[Reason]string{
	NotNewest:     bareSandbox + "its pod has a newer one",
	PodGone:       bareSandbox + podReasonText[PodGone],
	PodEvicted:    bareSandbox + podReasonText[PodEvicted],
	PodTerminated: bareSandbox + podReasonText[PodTerminated],
}

const bareSandbox = "not ready, without containers, and "

// olderSandbox orders sandboxes by age, oldest first, and equals by attempt and ID.
func olderSandbox(a, b *Sandbox) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Attempt, b.Attempt),
		strings.Compare(a.ID, b.ID))
}
