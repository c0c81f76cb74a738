package stats

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"jettison/cri"
)

// Pod is what the runtime tells of one pod: all its sandboxes, and the containers of the ready one.
type Pod struct {
	PodRef      PodReference
	Sandboxes   []cri.PodSandbox // newest attempt first
	Cgroup      string           // path below the root; empty: the runtime did not say
	Containers  []cri.Container  // running or about to
	Annotations map[string]string
}

// Index is the runtime's pods by UID. It is never changed once made.
type Index map[string]*Pod

// NewIndex groups a listing by pod. Sandboxes without a UID (made by hand, without metadata) cannot be told apart and are
// left out.
func NewIndex(l cri.Listing) Index {
	index := Index{}
	bySandbox := make(map[string]*Pod, len(l.Sandboxes))
	for _, s := range l.Sandboxes {
		if s.UID == "" {
			continue
		}
		p := index[s.UID]
		if p == nil {
			p = &Pod{PodRef: PodReference{Name: s.Name, Namespace: s.Namespace, UID: s.UID}}
			index[s.UID] = p
		}
		p.Sandboxes = append(p.Sandboxes, s)
		bySandbox[s.ID] = p
	}
	for _, p := range index {
		slices.SortFunc(p.Sandboxes, func(a, b cri.PodSandbox) int {
			return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt), strings.Compare(a.ID, b.ID))
		})
		newest := p.Sandboxes[0]
		p.Annotations = newest.Annotations
		p.Cgroup = CgroupOfParent(newest.CgroupParent)
	}
	for _, c := range l.Containers {
		if c.State == cri.Exited {
			continue
		}
		if p := bySandbox[c.SandboxID]; p != nil {
			p.Containers = append(p.Containers, c)
		}
	}
	return index
}

// ready reports whether any sandbox of the pod is.
func (p *Pod) ready() bool {
	return slices.ContainsFunc(p.Sandboxes, func(s cri.PodSandbox) bool { return s.Ready })
}

// youth is how long after its start a sandbox may be without a running container.
const youth = time.Minute

// Settled is false while a young pod has no running container yet: what the runtime says of it is about to change.
func (i Index) Settled(now time.Time) bool {
	for _, p := range i {
		running := slices.ContainsFunc(p.Containers, func(c cri.Container) bool { return c.Running })
		if !running && p.Sandboxes[0].Ready && now.Sub(p.Sandboxes[0].CreatedAt) < youth {
			return false
		}
	}
	return true
}

// elsewhere is a pod that was not found where pods are looked for. The cgroup that the runtime names counts only if its name
// is this very pod's: a sandbox made without a cgroup of its own lies in one that it shares with others (containerd's
// /k8s.io, a system.slice), and killing that one would kill them all. Without a cgroup the pod is unmeasured.
func (p *Pod) elsewhere() PodStats {
	out := PodStats{PodRef: p.PodRef}
	if dir, base := path.Split(p.Cgroup); base != "" {
		if c, ok := ParsePodCgroup(strings.Trim(dir, "/"), base); ok && c.UID == p.PodRef.UID {
			out.Cgroup, out.QOSClass = c.Path, c.QOSClass
		}
	}
	return out
}

// scored reports whether the oom_score_adj of a container is known; all of a pod have the same where it says anything of
// its priority.
func (p *Pod) scored() bool {
	return slices.ContainsFunc(p.Containers, func(c cri.Container) bool { return c.OOMScoreAdj != nil })
}

// describe fills in what the runtime knows.
func (p *Pod) describe(out *PodStats, capacity Opt[uint64]) {
	out.PodRef, out.Announced, out.Annotations = p.PodRef, true, p.Annotations
	out.StartTime = p.Sandboxes[0].CreatedAt
	for _, s := range p.Sandboxes {
		out.SandboxIDs = append(out.SandboxIDs, s.ID)
	}
	sum := Some(MemoryRequest{})
	for _, c := range p.Containers {
		if adj := c.OOMScoreAdj; adj != nil && *adj == oomScoreAdjGuaranteed && out.QOSClass != Guaranteed && out.QOSClass != "" {
			out.NodeCritical = true
		}
		request := containerRequest(out.QOSClass, c.OOMScoreAdj, c.MemoryLimit, capacity)
		sum = Opt[MemoryRequest]{V: sum.V.add(request.V), OK: sum.OK && request.OK}
	}
	if len(p.Containers) > 0 {
		out.MemoryRequest = sum
	}
}
