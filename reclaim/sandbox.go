package reclaim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// planSandboxes follows the kubelet's evictSandboxes: one that is not ready and has no container
// may go; pods that are not gone keep their newest, whether that one may go or not. Unlike
// containers it does not wait until all pods are known, save for pods that are not named. removed
// are the IDs of the containers that go before.
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
	slices.SortFunc(all, func(a, b *Sandbox) int {
		return cmp.Or(strings.Compare(a.PodUID, b.PodUID), olderSandbox(b, a))
	})
	over, newer := all[:0], ""
	for _, s := range all {
		_, ok := w.runtime(s.PodUID)
		if ok = ok || s.PodUID == newer; ok && s.NotReady && !full[s.ID] {
			over = append(over, s)
		}
		newer = s.PodUID
	}
	w.steps(len(over))
	first := len(w.plan.Steps)
	for _, s := range over {
		reason, ok := w.runtime(s.PodUID)
		if !ok {
			reason = NotNewest
		}
		w.plan.Steps = append(w.plan.Steps, Step{
			Action: RemoveSandbox, ID: s.ID, PodUID: s.PodUID, Name: s.Namespace + "/" + s.Name,
			Since: s.CreatedAt, Reason: reason,
			Why: sandboxWords[reason],
		})
	}
	slices.SortFunc(w.plan.Steps[first:], oldest)
}

// sandboxWords are the reasons of sandboxes in words.
var sandboxWords = map[Reason]string{
	NotNewest: bare + "its pod has a newer one", PodGone: bare + podWords[PodGone], PodEvicted: bare +
		podWords[PodEvicted],
	PodTerminated: bare + podWords[PodTerminated],
}

const bare = "not ready, without containers, and "

// olderSandbox orders the oldest first, and equals by attempt and ID.
func olderSandbox(a, b *Sandbox) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Attempt, b.Attempt),
		strings.Compare(a.ID, b.ID))
}
