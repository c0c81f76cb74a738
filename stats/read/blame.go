package read

import (
	"slices"
	"time"

	"jettison/stats"
	"jettison/stats/read/podindex"
)

// taken is what a container of a pod used at the last full look, as its working set in bytes.
type taken struct {
	id, name string
	bytes    uint64
}

// remember keeps of a full look who in the pod used its memory, and what was beside the containers:
// sandboxes, and the pod's own.
func (g *podGroup) remember(p *stats.PodStats) {
	g.taken, g.beside = g.taken[:0], p.Memory.WorkingSetBytes.V
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Name == "" || !c.Memory.WorkingSetBytes.OK {
			continue
		}
		g.taken = append(g.taken, taken{c.ID, c.Name, c.Memory.WorkingSetBytes.V})
		g.beside -= min(g.beside, c.Memory.WorkingSetBytes.V)
	}
}

// blameFor is how long containers are read: the loop waits for it, and may have to choose again.
const blameFor = 5 * time.Millisecond

// Blame fills in who in a pod uses its memory, where the look did not look into the pod: for the
// words of an eviction, which name the containers that are over their requests. It is called after
// the kill, which does not wait for it: what a container used is the most of what it still does and
// what it did at the last full look, and a pod's only container used what the pod did, which was
// measured before the kill, without what is beside it. What cannot be read any more is left out.
func (c *Reader) Blame(pods podindex.Index, p *stats.PodStats) {
	at := slices.IndexFunc(c.pods.order, func(k *podGroup) bool {
		return k.UID == p.PodRef.UID && k.Path == p.Cgroup
	})
	if at < 0 || p.Cgroup == "" || len(p.Containers) > 0 {
		return
	}
	k, known := c.pods.order[at], pods[p.PodRef.UID]
	// most likely it is gone: then what was counts
	_ = c.fs.ChildrenUntil(k.Path, c.pods.names, func(name string) bool {
		p.Containers = append(p.Containers, stats.ContainerStats{ID: containerID(name), Name: name})
		return len(p.Containers) < maxContainers
	})
	for i, began := 0, time.Now(); i < len(p.Containers); i++ {
		container := &p.Containers[i]
		if time.Since(began) < c.blame {
			container.Memory.WorkingSetBytes = c.workingSetOf(k.Path + "/" + container.Name)
		}
		container.Name = ""
	}
	beside := k.beside
	if len(k.taken) == 0 { // it is younger than the last full look
		beside = 0
		for i := range p.Containers {
			if known != nil && slices.Contains(known.SandboxIDs, p.Containers[i].ID) {
				beside += p.Containers[i].Memory.WorkingSetBytes.V
			}
		}
	}
	k.recall(p)
	if known != nil {
		known.DescribeContainers(p, len(p.Containers) < maxContainers)
	}
	k.bound(p, beside)
}

// workingSetOf is that of a cgroup; absent: it cannot be read.
func (c *Reader) workingSetOf(path string) (out stats.Opt[uint64]) {
	g, err := c.fs.Group(path)
	if err != nil {
		return out
	}
	defer g.Close()
	current, err := g.MemoryCurrent(c.buf)
	if err != nil || g.MemoryStat(c.buf, &c.stat) != nil {
		return out
	}
	return stats.Some(workingSet(current, c.stat.InactiveFile))
}

// recall has containers have used no less than they did at the last full look. Where all cgroups
// are gone by now, those of then are there.
func (g *podGroup) recall(p *stats.PodStats) {
	gone := len(p.Containers) == 0
	for i := range g.taken {
		was := &g.taken[i]
		at := slices.IndexFunc(p.Containers, func(c stats.ContainerStats) bool { return c.ID == was.id })
		if at < 0 {
			if !gone {
				continue // it had ended before
			}
			at, p.Containers = len(p.Containers), append(p.Containers, stats.ContainerStats{ID: was.id})
		}
		container := &p.Containers[at]
		container.Name = was.name
		container.Memory.WorkingSetBytes = stats.Some(max(container.Memory.WorkingSetBytes.V, was.bytes))
	}
}

// bound has a pod's only container have used what the pod did, but for what is beside it, and none
// more than the pod.
func (g *podGroup) bound(p *stats.PodStats, beside uint64) {
	whole := p.Memory.WorkingSetBytes
	if !whole.OK {
		return
	}
	for i := range p.Containers {
		used := &p.Containers[i].Memory.WorkingSetBytes
		if len(p.Containers) == 1 && !p.Memory.Quick {
			*used = stats.Some(max(used.V, whole.V-min(beside, whole.V)))
		}
		used.V = min(used.V, whole.V)
	}
}
