package reclaim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// planSandboxes follows the kubelet's evictSandboxes: one that is not ready and has no container may go; pods that are not gone
// keep their newest, whether that one may go or not. Unlike containers it does not wait until all pods are known, save for pods that
// are not named. removed are the IDs of the containers that go before.
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
			w.leave(fmt.Sprintf("sandbox %.64q", s.ID), "it does not say which pod it is of")
			continue
		}
		all = append(all, s)
	}
	// By pod, the newest first.
	slices.SortFunc(all, func(a, b *Sandbox) int { return cmp.Or(strings.Compare(a.PodUID, b.PodUID), olderSandbox(b, a)) })
	var steps []Step
	for i, s := range all {
		reason, ok := w.runtime(s.PodUID)
		why := podWords[reason]
		if !ok {
			reason, why = NotNewest, "its pod has a newer one"
			ok = i > 0 && all[i-1].PodUID == s.PodUID
		}
		if !ok || !s.NotReady || full[s.ID] {
			continue
		}
		steps = append(steps, Step{
			Action: RemoveSandbox, ID: s.ID, PodUID: s.PodUID, Name: s.Namespace + "/" + s.Name, Since: s.CreatedAt, Reason: reason,
			Why: "not ready, without containers, and " + why,
		})
	}
	slices.SortFunc(steps, func(a, b Step) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.ID, b.ID)) })
	w.plan.Steps = append(w.plan.Steps, steps...)
}

// olderSandbox orders the oldest first, and equals by attempt and ID.
func olderSandbox(a, b *Sandbox) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Attempt, b.Attempt), strings.Compare(a.ID, b.ID))
}
