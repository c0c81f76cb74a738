package reclaim

import (
	"fmt"
	"slices"
	"strings"
)

// What pods leave beside what the runtime keeps: links to their logs, and cgroups.

// ContainerOfLink is the ID in the name of a link to a container's log,
// POD_NAMESPACE_CONTAINER-ID.log (kubelet pkg/kubelet/kuberuntime/legacy.go
// getContainerIDFromLegacyLogSymlink): hexadecimal digits, 64 of them with today's runtimes. "":
// the name is not one.
func ContainerOfLink(name string) string {
	rest, ok := strings.CutSuffix(name, ".log")
	at := strings.LastIndexByte(rest, '-')
	if !ok || at <= 0 || len(name) > 255 || strings.Count(rest[:at], "_") != 2 {
		return ""
	}
	id := rest[at+1:]
	if len(id) < 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return id
}

// planLinks removes links that lead nowhere and whose container has exited or is not there. The
// kubelet also removes them where it cannot find that out (weakness 20).
func (w *planner) planLinks() {
	if len(w.look.Links) == 0 {
		return
	}
	alive := make(map[string]bool, len(w.look.Containers))
	for i := range w.look.Containers {
		if c := &w.look.Containers[i]; c.State != Exited {
			alive[c.ID] = true
		}
	}
	links := slices.Clone(w.look.Links)
	slices.SortFunc(links, func(a, b Link) int { return strings.Compare(a.Name, b.Name) })
	for _, l := range slices.Compact(links) {
		switch id := ContainerOfLink(l.Name); {
		case id == "":
			w.leave(fmt.Sprintf("link %.128q", l.Name),
				"not the name of a link to a container's log, pod_namespace_container-id.log")
		case !alive[id]: // the log of one that runs is not there for a moment while it is rotated
			why := "what it leads to is gone, and its container does not run"
			w.plan.Steps = append(w.plan.Steps, Step{Action: RemoveLink, ID: l.Name, Reason: Dangling,
				Why: why})
		}
	}
}

// planVolumes removes what evictions have put aside and not removed: they take minutes, and a node
// may lose its power meanwhile. It is of a life that has ended, also where the pod is back.
func (w *planner) planVolumes() {
	uids := slices.Clone(w.look.Aside)
	slices.Sort(uids)
	for _, uid := range slices.Compact(uids) {
		why := "an eviction has put them aside, and their removal has not ended"
		w.plan.Steps = append(w.plan.Steps, Step{Action: RemoveVolumes, ID: uid, PodUID: uid,
			Reason: PutAside, Why: why})
	}
}

// planCgroups removes the empty cgroups of pods that are gone or evicted and of which the runtime
// has nothing that stays.
func (w *planner) planCgroups() {
	if len(w.look.Cgroups) == 0 || !w.look.PodsSynced {
		return
	}
	going := make(map[string]bool, len(w.plan.Steps))
	for i := range w.plan.Steps {
		if s := &w.plan.Steps[i]; s.Action == RemoveContainer || s.Action == RemoveSandbox {
			going[s.ID] = true
		}
	}
	stays := map[string]bool{}
	for i := range w.look.Sandboxes {
		if s := &w.look.Sandboxes[i]; !going[s.ID] {
			stays[s.PodUID] = true
		}
	}
	for i := range w.look.Containers {
		if c := &w.look.Containers[i]; !going[c.ID] {
			stays[c.PodUID] = true
			if s := w.sandboxes[c.SandboxID]; s != nil {
				stays[s.PodUID] = true
			}
		}
	}
	all := slices.Clone(w.look.Cgroups)
	slices.SortFunc(all, func(a, b PodCgroup) int { return strings.Compare(a.Path, b.Path) })
	for _, g := range all {
		reason, ok := w.content(g.PodUID)
		if !ok || g.Populated || g.PodUID == "" || stays[g.PodUID] {
			continue
		}
		if !isUID(g.PodUID) {
			w.leave(fmt.Sprintf("cgroup %.128q", g.Path), "not the name of a pod's cgroup, with its UID")
			continue
		}
		why := "empty, and " + podWords[reason]
		w.plan.Steps = append(w.plan.Steps, Step{Action: RemoveCgroup, ID: g.Path, PodUID: g.PodUID,
			Reason: reason, Why: why})
	}
}
