// Package podindex holds the pods that the container runtime reports: their identity and
// requests, not their usage.
//
//	pod.go          Pod, Index: made from a cri.Listing
//	describe.go     FromRuntime: a pod from the runtime's data alone
//	roots.go        paths of pods' cgroups, both drivers
//	request.go      the request of a pod: a range, from its containers
//	oomscoreadj.go  the request of a container, from oom_score_adj and cpu.shares
//	requestapi.go   both requests, for callers without a look
package podindex

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"jettison/cri"
	"jettison/stats"
)

// Pod holds the runtime's data of one pod: all its sandboxes, and their containers.
type Pod struct {
	PodRef      stats.PodReference
	Sandboxes   []cri.PodSandbox // newest attempt first
	Cgroup      string           // path below the root; empty: not reported
	Containers  []cri.Container  // running or about to run
	Exited      []cri.Container  // exited containers that the runtime still lists
	Annotations map[string]string

	// Outside are the running containers outside the pod's cgroup, and Unlocated those whose
	// processes are not known. Self: the agent runs in such a container. read.OutsideFinder sets
	// all of them before the Index is shared.
	Outside   []stats.OutsideContainer
	Unlocated []Unlocated
	Self      bool

	SandboxIDs []string
	restarts   uint64 // of all containers, including dead ones
	parts      parts
}

// Unlocated is a running container whose processes are not known.
type Unlocated struct {
	ID string
	// cgroup of the process that the runtime reports, outside the pod's cgroup, which cannot be
	// shown to be the container's; empty: the runtime reports none
	Cgroup string
}

// Index maps UIDs to the runtime's pods. It is immutable.
type Index map[string]*Pod

// New groups a listing by pod. It leaves out sandboxes without a UID (created manually, without
// metadata), because they cannot be assigned to a pod.
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
		if c.State == cri.Exited {
			p.Exited = append(p.Exited, c)
		} else {
			p.Containers = append(p.Containers, c)
		}
	}
	attempts := map[string]uint64{}
	for _, p := range index {
		p.restarts = p.countRestarts(attempts)
		p.arrange()
	}
	return index
}

// countRestarts returns the sum of the highest attempts of the containers, by name, including dead
// ones. attempts is scratch space.
func (p *Pod) countRestarts(attempts map[string]uint64) (sum uint64) {
	clear(attempts)
	for _, from := range [][]cri.Container{p.Containers, p.Exited} {
		for i := range from {
			name, n := from[i].Name, uint64(from[i].Attempt)
			if before := attempts[name]; n > before {
				attempts[name] = n
				sum += n - before
			}
		}
	}
	return sum
}

// Ready reports whether any sandbox of the pod is ready.
func (p *Pod) Ready() bool {
	return slices.ContainsFunc(p.Sandboxes, func(s cri.PodSandbox) bool { return s.Ready })
}

// settleTime is the time for which a new sandbox may have no running container.
const settleTime = time.Minute

// Settled reports whether every new pod has a running container. Until then the runtime's data
// of that pod is about to change.
func (i Index) Settled(now time.Time) bool {
	for _, p := range i {
		running := slices.ContainsFunc(p.Containers, func(c cri.Container) bool { return c.Running })
		// a clock may be set back
		if !running && p.Sandboxes[0].Ready && now.Sub(p.Sandboxes[0].CreatedAt).Abs() < settleTime {
			return false
		}
	}
	return true
}

// HasScore reports whether the oom_score_adj of a container is known. One container is enough: if
// the value depends on the priority, all containers of the pod have the same value.
func (p *Pod) HasScore() bool {
	return slices.ContainsFunc(p.Containers,
		func(c cri.Container) bool { return c.OOMScoreAdj != nil })
}

// StatusRefused reports whether the runtime's status of the pod, or of one of its containers,
// exceeds the size limit.
func (p *Pod) StatusRefused() bool {
	refused := func(c *cri.Container) bool { return c.Refused }
	return p.Sandboxes[0].Refused || slices.ContainsFunc(p.parts.alive, refused) ||
		slices.ContainsFunc(p.parts.dead, refused)
}

// Describe fills in the runtime's data of the pod. capacity is the node's memory.
func (p *Pod) Describe(out *stats.PodStats, capacity stats.Opt[uint64]) {
	out.PodRef, out.Announced, out.Annotations = p.PodRef, true, p.Annotations
	out.StartTime, out.SandboxIDs, out.StatusRefused = p.Sandboxes[0].CreatedAt, p.SandboxIDs,
		p.StatusRefused()
	for i := range p.Containers {
		c := &p.Containers[i]
		if adj := c.OOMScoreAdj; adj != nil && *adj == OOMScoreAdjGuaranteed &&
			out.QOSClass != stats.Guaranteed && out.QOSClass != "" {
			out.NodeCritical = true
		}
	}
	if len(p.Containers)+len(p.Exited) > 0 {
		out.MemoryRequest, out.CPURequestMillis = p.memoryRequest(out.QOSClass, capacity), p.cpuMillis()
		out.Restarts = stats.Some(p.restarts)
	}
	if out.QOSClass == stats.BestEffort { // by definition
		out.CPURequestMillis = stats.Some(stats.Range{})
	}
}

// sum adds two ranges; the result is absent if one of them is.
func sum(a, b stats.Opt[stats.Range]) stats.Opt[stats.Range] {
	return stats.Opt[stats.Range]{V: a.V.Add(b.V), OK: a.OK && b.OK}
}

// DescribeContainers adds names to the containers found in the pod's cgroup and removes the
// sandboxes' own cgroups, and those of CRI-O's monitor processes. If not all cgroups were read
// (all is false), it adds the runtime's other containers without values, because their disk usage
// is measured independently of cgroups.
func (p *Pod) DescribeContainers(out *stats.PodStats, all bool) {
	out.Containers = slices.DeleteFunc(out.Containers,
		func(c stats.ContainerStats) bool {
			return slices.Contains(p.SandboxIDs, c.ID) || strings.HasPrefix(c.ID, "crio-conmon-")
		})
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

// Process returns a process in the pod's network namespace, and the ID of its sandbox or container.
// It is the process of the newest sandbox or, if that has none (CRI-O's drop_infra_ctr), of a
// container. pid 0: unknown.
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
