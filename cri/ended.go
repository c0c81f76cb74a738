package cri

import (
	"cmp"
	"slices"
)

// endedMost bounds what a List tells of pods that have ended: a node that keeps a few dead
// containers of each pod is far below, and one that was never cleaned has tens of thousands, which
// are more than the agent's memory holds. Who collects them lists for itself.
const endedMost = 1000

// endedPods are the sandboxes of pods that have no ready one.
type endedPods struct {
	ids    map[string]bool // of all sandboxes, and whether it is one
	exited int             // their containers that have, so far
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

// keeps says which containers are listed. One whose sandbox is not known came with that in between.
func (e *endedPods) keeps(c *Container) bool {
	if c.State != Exited || !e.ids[c.SandboxID] {
		return true
	}
	e.exited++
	return e.exited <= endedMost
}

// trim leaves out sandboxes beyond endedMost, the oldest: of pods that a kubelet has from the API
// and of which nothing else that decides is known, in which no container may run. What is static,
// or may be, stays.
func (e *endedPods) trim(sandboxes []PodSandbox, containers []Container) []PodSandbox {
	if len(sandboxes) <= endedMost {
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
		if s := &sandboxes[i]; e.ids[s.ID] && !alive[s.ID] && plainAPI(s.Annotations) {
			over = append(over, s)
		}
	}
	if len(over) <= endedMost {
		return sandboxes
	}
	slices.SortFunc(over, func(a, b *PodSandbox) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	gone := make(map[string]bool, len(over))
	for _, s := range over[endedMost:] {
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

// plainAPI reports whether annotations say that a pod came from an API server, and nothing else
// that decides.
func plainAPI(annotations map[string]string) bool {
	for key := range annotations {
		if decides[key] && key != "kubernetes.io/config.source" {
			return false
		}
	}
	return annotations["kubernetes.io/config.source"] == "api"
}

// deciding are the annotations of a sandbox that is over that decide something: when a kubelet saw
// the pod first is another text in each. Those that have nothing but the same source share one map.
func deciding(all map[string]string, sources map[string]map[string]string) map[string]string {
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
