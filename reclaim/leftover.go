package reclaim

import (
	"fmt"
	"slices"
	"strings"
)

// Leftovers of pods outside the runtime: links to their logs, volumes, and cgroups.

// ContainerOfLink returns the container ID in the name of a link to a container's log,
// POD_NAMESPACE_CONTAINER-ID.log (kubelet pkg/kubelet/kuberuntime/legacy.go
// getContainerIDFromLegacyLogSymlink). The ID is hexadecimal, with 64 digits in current runtimes.
// "": the name has another form.
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

// planLinks removes links without a target if their container has exited or does not exist. The
// kubelet also removes a link if it cannot determine the container's state (weakness 20).
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
			w.addLeft(fmt.Sprintf("link %.128q", l.Name),
				"not the name of a link to a container's log, pod_namespace_container-id.log")
		case !alive[id]: // the log of a running container is briefly missing during rotation
			why := "its target is gone and its container does not run"
			w.plan.Steps = append(w.plan.Steps, Step{Action: RemoveLink, ID: l.Name, Reason: Dangling,
				Why: why})
		}
	}
}

// planVolumes removes volumes that evictions moved aside and did not finish removing. The removal
// takes minutes, and the node may lose power meanwhile. The volumes belong to an ended instance of
// the pod, even if the pod was recreated.
func (w *planner) planVolumes() {
	uids := slices.Clone(w.look.MovedAside)
	slices.Sort(uids)
	for _, uid := range slices.Compact(uids) {
		why := "moved aside by an eviction that did not finish removing them"
		w.plan.Steps = append(w.plan.Steps, Step{Action: RemoveVolumes, ID: uid, PodUID: uid,
			Reason: MovedAside, Why: why})
	}
}

// planCgroups removes the empty cgroups of pods that are gone or evicted, if no container or
// sandbox of the pod remains after the plan.
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
		reason, ok := w.contentReason(g.PodUID)
		if !ok || g.Populated || g.PodUID == "" || stays[g.PodUID] {
			continue
		}
		if !isUID(g.PodUID) {
			w.addLeft(fmt.Sprintf("cgroup %.128q", g.Path), "not the name of a pod's cgroup, with its UID")
			continue
		}
		why := "empty, and " + podReasonText[reason]
		w.plan.Steps = append(w.plan.Steps, Step{Action: RemoveCgroup, ID: g.Path, PodUID: g.PodUID,
			Reason: reason, Why: why})
	}
}
