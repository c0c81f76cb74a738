// Package podindex holds the pods as the container runtime tells of them: who they are and what
// they request, not what they use.
//
//	pod.go     Pod, Index: made from a cri.Listing
//	told.go    Told: a pod by the runtime's word alone
//	roots.go   where pods' cgroups lie, both drivers
//	request.go what a pod requests: a range, of its containers
//	inverse.go what a container requests, out of oom_score_adj and cpu.shares
//	asked.go   both, apart from a look
package podindex

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"jettison/cri"
	"jettison/stats"
)

// Pod is what the runtime tells of one pod: all its sandboxes, and their containers.
type Pod struct {
	PodRef      stats.PodReference
	Sandboxes   []cri.PodSandbox // newest attempt first
	Cgroup      string           // path below the root; empty: the runtime did not say
	Containers  []cri.Container  // running or about to
	Exited      []cri.Container  // those that the runtime still has
	Annotations map[string]string

	SandboxIDs []string
	restarts   map[string]uint64 // the highest attempt of each container, by name, dead ones included
	parts      parts
}

// Index is the runtime's pods by UID. It is never changed once made.
type Index map[string]*Pod

// New groups a listing by pod. Sandboxes without a UID (made by hand, without metadata) cannot be
// told apart and are left out.
func New(l cri.Listing) Index {
	index := Index{}
	bySandbox := make(map[string]*Pod, len(l.Sandboxes))
	for _, s := range l.Sandboxes {
		if s.UID == "" {
			continue
		}
		p := index[s.UID]
		if p == nil {
			p = &Pod{PodRef: stats.PodReference{Name: s.Name, Namespace: s.Namespace, UID: s.UID}}
			index[s.UID] = p
		}
		p.Sandboxes = append(p.Sandboxes, s)
		bySandbox[s.ID] = p
	}
	for _, p := range index {
		slices.SortFunc(p.Sandboxes, func(a, b cri.PodSandbox) int {
			return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), b.CreatedAt.Compare(a.CreatedAt),
				strings.Compare(a.ID, b.ID))
		})
		newest := p.Sandboxes[0]
		p.Annotations = newest.Annotations
		p.Cgroup = CgroupOfParent(newest.CgroupParent)
		for _, s := range p.Sandboxes {
			p.SandboxIDs = append(p.SandboxIDs, s.ID)
		}
	}
	for _, c := range l.Containers {
		p := bySandbox[c.SandboxID]
		if p == nil {
			continue
		}
		if p.restarts == nil {
			p.restarts = map[string]uint64{}
		}
		p.restarts[c.Name] = max(p.restarts[c.Name], uint64(c.Attempt))
		if c.State == cri.Exited {
			p.Exited = append(p.Exited, c)
		} else {
			p.Containers = append(p.Containers, c)
		}
	}
	for _, p := range index {
		p.arrange()
	}
	return index
}

// Ready reports whether any sandbox of the pod is.
func (p *Pod) Ready() bool {
	return slices.ContainsFunc(p.Sandboxes, func(s cri.PodSandbox) bool { return s.Ready })
}

// youth is how long after its start a sandbox may be without a running container.
const youth = time.Minute

// Settled is false while a young pod has no running container yet: what the runtime says of it is
// about to change.
func (i Index) Settled(now time.Time) bool {
	for _, p := range i {
		running := slices.ContainsFunc(p.Containers, func(c cri.Container) bool { return c.Running })
		// a clock may be set back
		if !running && p.Sandboxes[0].Ready && now.Sub(p.Sandboxes[0].CreatedAt).Abs() < youth {
			return false
		}
	}
	return true
}

// Scored reports whether the oom_score_adj of a container is known; all of a pod have the same
// where it says anything of its priority.
func (p *Pod) Scored() bool {
	return slices.ContainsFunc(p.Containers,
		func(c cri.Container) bool { return c.OOMScoreAdj != nil })
}

// Refused reports whether the runtime's status of the pod, or of a container of it, is larger than
// is taken of one.
func (p *Pod) Refused() bool {
	refused := func(c *cri.Container) bool { return c.Refused }
	return p.Sandboxes[0].Refused || slices.ContainsFunc(p.parts.alive, refused) ||
		slices.ContainsFunc(p.parts.dead, refused)
}

// Describe fills in what the runtime knows.
func (p *Pod) Describe(out *stats.PodStats, capacity stats.Opt[uint64]) {
	out.PodRef, out.Announced, out.Annotations = p.PodRef, true, p.Annotations
	out.StartTime, out.SandboxIDs, out.StatusRefused = p.Sandboxes[0].CreatedAt, p.SandboxIDs,
		p.Refused()
	for i := range p.Containers {
		c := &p.Containers[i]
		if adj := c.OOMScoreAdj; adj != nil && *adj == OOMScoreAdjGuaranteed &&
			out.QOSClass != stats.Guaranteed && out.QOSClass != "" {
			out.NodeCritical = true
		}
	}
	if len(p.Containers)+len(p.Exited) > 0 {
		out.MemoryRequest, out.CPURequestMillis = p.memoryRequest(out.QOSClass, capacity), p.cpuMillis()
	}
	if out.QOSClass == stats.BestEffort { // by definition
		out.CPURequestMillis = stats.Some(stats.Range{})
	}
	if len(p.restarts) > 0 {
		restarts := uint64(0)
		for _, n := range p.restarts {
			restarts += n
		}
		out.Restarts = stats.Some(restarts)
	}
}

// sum is absent as soon as one part is.
func sum(a, b stats.Opt[stats.Range]) stats.Opt[stats.Range] {
	return stats.Opt[stats.Range]{V: a.V.Add(b.V), OK: a.OK && b.OK}
}

// DescribeContainers names the containers that were found in the pod's cgroup and leaves out its
// sandboxes' own. Where not all were looked into, the others that the runtime tells of are there
// without figures: what they write is measured apart from their cgroups.
func (p *Pod) DescribeContainers(out *stats.PodStats, all bool) {
	out.Containers = slices.DeleteFunc(out.Containers,
		func(c stats.ContainerStats) bool { return slices.Contains(p.SandboxIDs, c.ID) })
	for i := 0; i < len(p.Containers) && !all; i++ {
		id := p.Containers[i].ID
		if !slices.ContainsFunc(out.Containers, func(c stats.ContainerStats) bool { return c.ID == id }) {
			out.Containers = append(out.Containers, stats.ContainerStats{ID: id})
		}
	}
	for i := range out.Containers {
		s := &out.Containers[i]
		at := slices.IndexFunc(p.Containers, func(c cri.Container) bool { return c.ID == s.ID })
		if at < 0 {
			continue
		}
		c := &p.Containers[at]
		s.Name, s.StartTime = c.Name, c.CreatedAt
	}
	slices.SortFunc(out.Containers, func(a, b stats.ContainerStats) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
}

// Process is a process of the pod that shares its network: its newest sandbox's, or where the
// runtime keeps none (CRI-O's drop_infra_ctr) a container's. pid 0: none is known.
func (p *Pod) Process() (id string, pid int) {
	if s := p.Sandboxes[0]; s.PID > 0 {
		return s.ID, s.PID
	}
	for _, c := range p.Containers {
		if c.PID > 0 {
			return c.ID, c.PID
		}
	}
	return "", 0
}
