package read

import (
	"slices"
	"time"

	"jettison/stats"
	"jettison/stats/read/podindex"
)

// containerUse is the memory use of a container at the last full look, as its working set in
// bytes.
type containerUse struct {
	id, name string
	bytes    uint64
}

// rememberUsage stores the memory use of each container from a full look, and the use outside of
// containers: sandboxes and the pod's own cgroup.
func (g *podGroup) rememberUsage(p *stats.PodStats) {
	g.containerUsage, g.outsideContainers = g.containerUsage[:0], p.Memory.WorkingSetBytes.V
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Name == "" || !c.Memory.WorkingSetBytes.OK {
			continue
		}
		g.containerUsage = append(g.containerUsage, containerUse{c.ID, c.Name, c.Memory.WorkingSetBytes.V})
		g.outsideContainers -= min(g.outsideContainers, c.Memory.WorkingSetBytes.V)
	}
}

// blameLimit bounds the time for reading containers, because the loop waits meanwhile and may have
// to choose another victim.
const blameLimit = 5 * time.Millisecond

// Blame fills in the memory use of a pod's containers if the look did not read them, because an
// eviction message names the containers over their requests. It is called after the kill, so that
// it does not delay the kill. A container's use is therefore the larger of the current value and
// the value at the last full look. For the only container of a pod, the pod's use before the kill,
// minus the use outside of containers, is the minimum. Containers that can no longer be read are
// left out.
func (c *Reader) Blame(pods podindex.Index, p *stats.PodStats) {
	at := slices.IndexFunc(c.pods.order, func(k *podGroup) bool {
		return k.UID == p.PodRef.UID && (k.Path == p.Cgroup || p.Cgroup == "")
	})
	if at < 0 || p.Cgroup == "" && len(p.Outside) == 0 || len(p.Containers) > 0 {
		return
	}
	k, known := c.pods.order[at], pods[p.PodRef.UID]
	// After an error the cgroup is probably gone, and the values of the last full look count. So they
	// do while the kernel blocks the lister: the lock of this directory may be held.
	blocked := c.pods.client.inFlight
	if !blocked && p.Cgroup != "" {
		_ = c.fs.ChildrenUntil(k.Path, c.pods.names, func(name string) bool {
			p.Containers = append(p.Containers, stats.ContainerStats{ID: containerID(name), Name: name})
			return len(p.Containers) < maxContainers
		})
	}
	began := time.Now()
	for i := range p.Containers {
		container := &p.Containers[i]
		if time.Since(began) < c.blame {
			container.Memory.WorkingSetBytes = c.workingSetOf(k.Path + "/" + container.Name)
		}
		container.Name = ""
	}
	for i := range p.Outside {
		one := stats.ContainerStats{ID: p.Outside[i].ID}
		if at := p.Outside[i].Cgroup; at != "" && !blocked && time.Since(began) < c.blame {
			one.Memory.WorkingSetBytes = c.workingSetOf(at)
		}
		p.Containers = append(p.Containers, one)
	}
	outside := k.outsideContainers
	if len(k.containerUsage) == 0 { // the pod is newer than the last full look
		outside = 0
		for i := range p.Containers {
			if known != nil && slices.Contains(known.SandboxIDs, p.Containers[i].ID) {
				outside += p.Containers[i].Memory.WorkingSetBytes.V
			}
		}
	}
	k.useLastLook(p)
	if known != nil {
		known.DescribeContainers(p, len(p.Containers) < maxContainers)
	}
	k.bound(p, outside)
}

// workingSetOf returns the working set of a cgroup; absent if the cgroup cannot be read.
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

// useLastLook raises each container's use to the value at the last full look. If all cgroups have
// vanished, it adds the containers of that look.
func (g *podGroup) useLastLook(p *stats.PodStats) {
	gone := len(p.Containers) == 0
	for i := range g.containerUsage {
		was := &g.containerUsage[i]
		at := slices.IndexFunc(p.Containers, func(c stats.ContainerStats) bool { return c.ID == was.id })
		if at < 0 {
			if !gone {
				continue // the container had ended before
			}
			at, p.Containers = len(p.Containers), append(p.Containers, stats.ContainerStats{ID: was.id})
		}
		container := &p.Containers[at]
		container.Name = was.name
		container.Memory.WorkingSetBytes = stats.Some(max(container.Memory.WorkingSetBytes.V, was.bytes))
	}
}

// bound raises the use of a pod's only container to the pod's use minus outside, and limits every
// container's use to the pod's use.
func (g *podGroup) bound(p *stats.PodStats, outside uint64) {
	whole := p.Memory.WorkingSetBytes
	if !whole.OK {
		return
	}
	for i := range p.Containers {
		used := &p.Containers[i].Memory.WorkingSetBytes
		if len(p.Containers) == 1 && !p.Memory.Quick {
			*used = stats.Some(max(used.V, whole.V-min(outside, whole.V)))
		}
		used.V = min(used.V, whole.V)
	}
}
