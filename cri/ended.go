package cri

import (
	"cmp"
	"slices"
)

// maxEnded limits the sandboxes and containers of ended pods in a List. A node that keeps a few
// dead containers per pod is far below the limit. A node that was never cleaned has tens of
// thousands, which exceed the agent's memory. Garbage collection makes its own list.
const maxEnded = 1000

// endedPods tracks the sandboxes of ended pods: pods without a ready sandbox.
type endedPods struct {
	ids    map[string]bool // all sandboxes; true: of an ended pod
	exited int             // exited containers of ended pods so far
}

func endedOf(sandboxes []PodSandbox) *endedPods {
	ready := map[string]bool{}
	for i := range sandboxes {
		if s := &sandboxes[i]; s.Ready {
			ready[s.UID] = true
		}
	}
	e := &endedPods{ids: make(map[string]bool, len(sandboxes))}
	for i := range sandboxes {
		e.ids[sandboxes[i].ID] = !ready[sandboxes[i].UID]
	}
	return e
}

// keeps reports whether to list a container. A container with an unknown sandbox appeared between
// the two lists, and is listed.
func (e *endedPods) keeps(c *Container) bool {
	if c.State != Exited || !e.ids[c.SandboxID] {
		return true
	}
	e.exited++
	return e.exited <= maxEnded
}

// trim drops the oldest sandboxes of ended pods beyond maxEnded. It drops only sandboxes of pods
// from the API server, without other relevant annotations and without a container that may run.
// Sandboxes of pods that are or may be static stay.
func (e *endedPods) trim(sandboxes []PodSandbox, containers []Container) []PodSandbox {
	if len(sandboxes) <= maxEnded {
		return sandboxes
	}
	alive := map[string]bool{}
	for i := range containers {
		if c := &containers[i]; c.State != Exited {
			alive[c.SandboxID] = true
		}
	}
	var over []*PodSandbox
	for i := range sandboxes {
		if s := &sandboxes[i]; e.ids[s.ID] && !alive[s.ID] && onlyFromAPI(s.Annotations) {
			over = append(over, s)
		}
	}
	if len(over) <= maxEnded {
		return sandboxes
	}
	slices.SortFunc(over, func(a, b *PodSandbox) int {
		return cmp.Or(newestFirst(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	gone := make(map[string]bool, len(over))
	for _, s := range over[maxEnded:] {
		gone[s.ID] = true
	}
	out := make([]PodSandbox, 0, len(sandboxes)-len(gone))
	for i := range sandboxes {
		if !gone[sandboxes[i].ID] {
			out = append(out, sandboxes[i])
		}
	}
	return out
}

// onlyFromAPI reports whether annotations mark a pod from an API server and contain no other
// relevant key.
func onlyFromAPI(annotations map[string]string) bool {
	for key := range annotations {
		if relevantKeys[key] && key != "kubernetes.io/config.source" {
			return false
		}
	}
	return annotations["kubernetes.io/config.source"] == "api"
}

// relevantAnnotations removes the time when the kubelet first saw the pod from the annotations of
// an ended sandbox. Sandboxes with equal remaining annotations, only a source, then share one map.
func relevantAnnotations(all map[string]string,
	sources map[string]map[string]string) map[string]string {
	const seen, source = "kubernetes.io/config.seen", "kubernetes.io/config.source"
	delete(all, seen)
	if len(all) != 1 || all[source] == "" {
		return all
	}
	if sources[all[source]] == nil {
		sources[all[source]] = all
	}
	return sources[all[source]]
}
