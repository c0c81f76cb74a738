package read

import (
	"errors"
	"os"
	"time"

	"jettison/cgroup"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// Collect makes the full look: all values of the node and each pod from cgroupfs and /proc. The
// values of disks, file systems and networks come from Background.Fill. A source that fails leaves
// its own values absent; the error names each such source.
func (c *Reader) Collect(now time.Time, pods podindex.Index, out *stats.Summary) error {
	n := &out.Node
	var none stats.Opt[stats.FsStats]
	n.Fs, n.ImageFs, n.ContainerFs, n.Layout = none, none, none, stats.Opt[stats.Layout]{}
	out.Sources = out.Sources[:0]
	errs := []error{c.Node(now, &out.Node)}
	c.PerCPU(&out.Node)
	errs = append(errs, c.Slow(now, &out.Node), c.cpus(now, &out.Node), c.view(now, pods, out, full))
	for i := range out.Pods {
		p := &out.Pods[i]
		if known := pods[p.PodRef.UID]; known != nil {
			known.DescribeContainers(p, len(p.Containers) < maxContainers)
		}
		c.pods.order[i].rememberUsage(p)
	}
	return errors.Join(errs...)
}

// Slow reads the node's values that the cheap look omits because they change slowly: the cgroup
// above all pods, tasks, pressure and huge pages. Call it once a second. A source that fails leaves its own
// values absent; the error names it.
func (c *Reader) Slow(now time.Time, out *stats.NodeStats) error {
	allocatable, pods := c.Allocatable(now, &out.Allocatable), c.podsTotal(now, &out.Pods)
	return errors.Join(allocatable, pods, c.Pressure(now, &out.Pressure), c.PIDs(now, &out.PIDs),
		c.slowMemory(&out.Memory))
}

// slowMemory reads the huge pages, and starts to read ZFS' cache if there is one. The cheap look uses
// them.
func (c *Reader) slowMemory(m *stats.NodeMemoryStats) error {
	c.slowMemoryRead = true
	pages, err := c.proc.HugePages(c.buf)
	c.hugePages = stats.Opt[uint64]{V: pages, OK: err == nil && pages > 0}
	if c.arc == nil {
		c.arc = startARC(c.proc, m)
	}
	return err
}

// ZFS returns an error if the node has ZFS and its cache cannot be read.
func (c *Reader) ZFS(now time.Time) error { return c.arc.err(now) }

// Allocatable reads the cgroup above all pods, under either driver's path.
func (c *Reader) Allocatable(now time.Time, out *stats.AllocatableMemoryStats) error {
	*out = stats.AllocatableMemoryStats{Time: now}
	for try := 0; try < 2; try++ {
		if err := c.findTop(); err != nil {
			return err
		}
		if c.top == nil {
			return nil
		}
		err := c.readAllocatable(out)
		if !errors.Is(err, cgroup.ErrVanished) {
			return err
		}
		c.top.Close()
		c.top = nil
	}
	return nil
}

// podsTotal reads the usage of all pods together from the cgroup that Allocatable found.
func (c *Reader) podsTotal(now time.Time, out *stats.PodsTotal) error {
	*out = stats.PodsTotal{Time: now}
	c.podsPIDsMax = stats.Opt[uint64]{}
	if c.top == nil {
		return nil
	}
	current, err := optional(c.top.MemoryCurrent(c.buf))
	if err == nil && current.OK {
		if err = c.top.MemoryStat(c.buf, &c.stat); err == nil {
			out.WorkingSetBytes = stats.Some(workingSet(current.V, c.stat.InactiveFile))
		}
	}
	var swapErr, tasksErr error
	out.SwapBytes, swapErr = optional(c.top.MemorySwapCurrent(c.buf))
	out.Tasks, tasksErr = optional(c.top.PIDsCurrent(c.buf))
	max, maxErr := limit(c.top.PIDsMax(c.buf))
	c.podsPIDsMax = max
	for _, e := range []error{err, swapErr, tasksErr, maxErr} {
		// the cgroup was removed: the next look opens its successor
		if e != nil && !errors.Is(e, cgroup.ErrVanished) && !errors.Is(e, os.ErrNotExist) {
			return e
		}
	}
	return nil
}

// findTop opens the cgroup above all pods. If the cgroups of both drivers exist, the one without a
// process is a leftover.
func (c *Reader) findTop() error {
	if c.top != nil {
		return nil
	}
	for _, path := range c.topCandidates {
		g, err := c.fs.Group(path)
		if errors.Is(err, cgroup.ErrVanished) {
			continue
		}
		if err != nil {
			return err
		}
		if e, err := g.Events(c.buf); err == nil && e.Populated {
			if c.top != nil {
				c.top.Close()
			}
			c.top = g
			return nil
		}
		if c.top != nil {
			g.Close()
			continue
		}
		c.top = g
	}
	return nil
}

func (c *Reader) readAllocatable(out *stats.AllocatableMemoryStats) error {
	bytes, err := limit(c.top.MemoryMax(c.buf))
	if err != nil || !bytes.OK {
		out.Unlimited = err == nil
		return err
	}
	current, err := optional(c.top.MemoryCurrent(c.buf))
	if err != nil || !current.OK {
		return err
	}
	if err := c.top.MemoryStat(c.buf, &c.stat); err != nil {
		return err
	}
	out.LimitBytes, out.WorkingSetBytes = bytes, stats.Some(workingSet(current.V, c.stat.InactiveFile))
	return nil
}

// Pressure reads the node's pressure and computes the shares of time stalled from earlier
// readings. The shares over one second need a call at least once a second. On a kernel without
// PSI they are absent, without an error.
func (c *Reader) Pressure(now time.Time, out *stats.NodePressure) error {
	var errs []error
	for _, r := range []struct {
		resource cgroup.Resource
		out      *stats.Pressure
	}{{cgroup.CPU, &out.CPU}, {cgroup.Memory, &out.Memory}, {cgroup.IO, &out.IO}} {
		*r.out = stats.Pressure{Time: now}
		psi, err := c.psiOf(c.root, r.resource)
		if err != nil {
			errs = append(errs, err)
		}
		if r.out.Stats = psi; psi.OK {
			r.out.Some, r.out.Full = c.stalls[r.resource].add(now, &psi.V)
		}
	}
	return errors.Join(errs...)
}

// PIDs reads the number of tasks and its limit, of the node, and of all pods if Slow found a limit.
func (c *Reader) PIDs(now time.Time, out *stats.NodePIDStats) error {
	*out = stats.NodePIDStats{Time: now}
	current, limit, err := c.proc.PIDs(c.buf)
	if err == nil {
		out.Current, out.Max = stats.Some(current), stats.Some(limit)
	}
	if c.top != nil && c.podsPIDsMax.OK {
		// the cgroup was removed: the next Slow opens its successor
		if n, err := c.top.PIDsCurrent(c.buf); err == nil {
			out.PodsMax, out.PodsCurrent = c.podsPIDsMax, stats.Some(n)
		}
	}
	return err
}

func (c *Reader) cpus(now time.Time, out *stats.NodeStats) error {
	stat, err := c.cpuStats(now, c.root, &c.nodeCPU)
	out.CPU = stat
	n, boot, procErr := c.proc.Stat()
	out.CPUs, out.StartTime = n, boot
	return errors.Join(err, procErr)
}
