package read

import (
	"errors"
	"fmt"
	"time"

	"jettison/cgroup"
	"jettison/stats"
	"jettison/stats/read/podindex"
	"jettison/stats/read/procfs"
)

// Reader reads a node's cgroups and /proc into Summaries. It keeps descriptors and buffers between
// looks, so that a look does not allocate while the set of pods stays the same. It makes no call
// that may block: Background makes such calls, the thread of StartLister makes the calls that the
// kernel may delay, and ZFS' cache and the processes in shared cgroups are read on goroutines of
// their own, with bounded waits. Use it from one goroutine at a time, and call Close.
type Reader struct {
	fs            *cgroup.FS
	proc          *procfs.Proc
	pods          *podSet
	processes     *processMeter
	self          string // cgroup of this process, empty: unknown
	root          *cgroup.Group
	topCandidates []string          // candidates for the cgroup above all pods
	top           *cgroup.Group     // the cgroup above all pods; nil: not found yet
	podsPIDsMax   stats.Opt[uint64] // pids.max of top; absent: unknown or "max"
	hugePages     stats.Opt[uint64]
	arc           *arcReader // nil: no ZFS
	// Slow, or the first cheap look, has read hugePages
	slowMemoryRead bool

	buf []byte // one file's content
	// one memory.stat; a local variable would be allocated at each look
	stat   cgroup.MemoryStat
	detail cgroup.MemoryDetail // one memory.stat in full
	psi    cgroup.PSIStats
	part   stats.PodStats // a container outside its pod's cgroup
	errs   []error
	groups groupBudget   // of the full look in progress
	blame  time.Duration // blameLimit, except in tests

	nodeCPU usageSample
	stalls  [3]stallHistory // by resource
}

// NewReader returns a Reader of the pods below a kubelet's cgroupRoot ("" and "/" are the same).
func NewReader(fs *cgroup.FS, proc *procfs.Proc, cgroupRoot string) (*Reader, error) {
	root, err := fs.Group("")
	if err != nil {
		return nil, err
	}
	return &Reader{fs: fs, proc: proc, pods: newPodSet(fs, proc, podindex.PodRoots(cgroupRoot)),
		processes: newProcessMeter(proc), root: root,
		topCandidates: podindex.TopRoots(cgroupRoot), buf: make([]byte, 32<<10), blame: blameLimit}, nil
}

// Close closes every descriptor except those of the given FS and Proc.
func (c *Reader) Close() {
	c.root.Close()
	if c.top != nil {
		c.top.Close()
	}
	c.pods.close()
	c.processes.close()
	c.arc.close()
}

// Node makes the cheap look: it reads the node's memory and swap. A source that fails leaves its
// own values absent; the error names it.
func (c *Reader) Node(now time.Time, out *stats.NodeStats) error {
	m := &out.Memory
	*m = stats.NodeMemoryStats{Time: now}
	out.Swap = stats.NodeSwapStats{Time: now}
	var info procfs.MemInfo
	stat := &c.stat
	infoErr := c.proc.MemInfo(c.buf, &info)
	if infoErr == nil {
		m.CapacityBytes, m.KernelAvailableBytes = info.Total, info.Available
		out.Swap.TotalBytes, out.Swap.FreeBytes = info.SwapTotal, info.SwapFree
	}
	statErr := c.root.MemoryStat(c.buf, stat)
	if statErr == nil {
		m.UsageBytes, m.RSSBytes, m.ShmemBytes = stats.Some(stat.Anon+stat.File), stats.Some(stat.Anon),
			stats.Some(stat.Shmem)
		m.WorkingSetBytes = stats.Some(workingSet(stat.Anon+stat.File, stat.InactiveFile))
	}
	if !c.slowMemoryRead {
		_ = c.slowMemory(m) // Slow repeats it and returns its error
	}
	if infoErr == nil {
		m.HugePagesBytes, m.ShrinkableBytes = c.hugePages, c.arc.shrinkable(now, m)
	}
	if infoErr == nil && statErr == nil {
		return nil
	}
	return errors.Join(infoErr, statErr)
}

// PerCPU adds the free memory that MemAvailable does not count. Call it when the cheap look finds
// memory short: right after a kill, much of the freed memory is counted only there. Without PerCPU,
// the available memory is underestimated.
func (c *Reader) PerCPU(out *stats.NodeStats) {
	if free, err := c.proc.PerCPUFree(); err == nil {
		out.Memory.PerCPUFreeBytes = stats.Some(free)
	}
}

// workingSet returns usage minus the inactive file cache, at least 0, as the kubelet and cAdvisor
// compute it.
func workingSet(usage, inactiveFile uint64) uint64 { return usage - min(inactiveFile, usage) }

// Memory makes the look that an eviction for memory is based on: the node's memory, and the pods as
// in MemoryView.
func (c *Reader) Memory(now time.Time, pods podindex.Index, out *stats.Summary) error {
	nodeErr := c.Node(now, &out.Node)
	c.PerCPU(&out.Node)
	return errors.Join(nodeErr, c.MemoryView(now, pods, out))
}

// MemoryView reads the memory, events, pressure and tasks of every pod, including pods that the
// runtime has not reported. Pods are sorted by UID. A pod that vanishes during the look is in the
// Summary without readings. The node's memory capacity in the Summary bounds the pods' requests.
func (c *Reader) MemoryView(now time.Time, pods podindex.Index, out *stats.Summary) error {
	return c.view(now, pods, out, memoryOnly)
}

// Quick reads the cheap part of Memory: the memory and tasks of each pod, and whether the pod has a
// live process. memory.stat costs ten times as much, and more while other processes are busy,
// because the kernel sums it over all CPUs (v6.12 mm/memcontrol.c mem_cgroup_flush_stats). QuickPod
// reads it for selected pods. Quick does not allocate.
func (c *Reader) Quick(now time.Time, pods podindex.Index, out *stats.Summary) error {
	nodeErr := c.Node(now, &out.Node)
	c.PerCPU(&out.Node)
	return errors.Join(nodeErr, c.view(now, pods, out, quick))
}

// QuickPod reads the remaining values of Memory for the pod at an index of the last Quick look.
func (c *Reader) QuickPod(now time.Time, pods podindex.Index, out *stats.Summary, i int) error {
	if i < 0 || i >= len(out.Pods) || i >= len(c.pods.order) ||
		out.Pods[i].PodRef.UID != c.pods.order[i].UID {
		return fmt.Errorf("pod %d of %d was not in the last quick look", i, len(out.Pods))
	}
	k, p := c.pods.order[i], &out.Pods[i]
	err := c.readPod(now, k, p, memoryOnly)
	c.identify(pods[k.UID], k, p, out.Node.Memory.CapacityBytes)
	if errors.Is(err, cgroup.ErrVanished) || err == errNotOpen {
		return nil
	}
	return err
}

// depth selects the values of a pod to read.
type depth int

const (
	quick depth = iota
	memoryOnly
	full
)

// view reads all pods. The content of out.Pods is valid until the next look into the same
// Summary.
func (c *Reader) view(now time.Time, pods podindex.Index, out *stats.Summary, d depth) error {
	out.Time = now
	c.errs, c.groups = c.errs[:0], groupBudget{}
	c.processes.begin()
	if d == full {
		c.groups = newGroupBudget()
	}
	if err := c.pods.discover(pods); err != nil {
		c.errs = append(c.errs, err)
	}
	kept := c.pods.order
	if have := cap(out.Pods); len(kept) > have {
		out.Pods = append(out.Pods[:have], make([]stats.PodStats, len(kept)-have)...)
	}
	out.Pods = out.Pods[:len(kept)]
	for i, k := range kept {
		p := &out.Pods[i]
		err := c.readPod(now, k, p, d)
		if err != nil && !errors.Is(err, cgroup.ErrVanished) && err != errNotOpen {
			c.errs = append(c.errs, err)
		}
		c.identify(pods[k.UID], k, p, out.Node.Memory.CapacityBytes)
	}
	if c.pods.client.late {
		c.errs = append(c.errs, errOpenLate)
	}
	if err := c.groups.err(); err != nil {
		c.errs = append(c.errs, err)
	}
	if len(c.errs) == 0 {
		return nil
	}
	return errors.Join(c.errs...)
}

// identify adds the runtime's data of a pod; known may be nil.
func (c *Reader) identify(known *podindex.Pod, k *podGroup, p *stats.PodStats,
	capacity stats.Opt[uint64]) {
	if known != nil {
		known.Describe(p, capacity)
	}
	if (known == nil || !known.HasScore()) && (p.Populated.V || !p.Populated.OK) {
		p.NodeCritical = c.nodeCritical(k, p)
	}
	switch {
	// a BestEffort pod has no request, by definition
	case p.QOSClass == stats.BestEffort && !p.MemoryRequest.OK:
		p.MemoryRequest = stats.Some(stats.Range{})
	case p.QOSClass == stats.Guaranteed && p.Memory.LimitBytes.OK:
		// The kubelet writes a Guaranteed pod's limit, which equals its request, to this file and
		// updates the limit on an in-place resize. Without a kubelet the limit may be "max": then the
		// runtime's data counts.
		p.MemoryRequest = stats.Some(stats.ExactRange(p.Memory.LimitBytes.V))
	}
	p.Self = c.self != "" && p.Cgroup != "" && podindex.Within(c.self, p.Cgroup) ||
		known != nil && known.Self
}

// UnannouncedPods visits the UIDs of pods that are in the hierarchy but that the runtime has not
// reported. It reads no file, and uses the list of a Refresh within the last freshFor.
func (c *Reader) UnannouncedPods(pods podindex.Index, visit func(uid string)) {
	if c.pods.client.recent() {
		c.pods.join(pods)
	} else {
		_ = c.pods.find(pods, false)
	}
	for _, k := range c.pods.order {
		if pods[k.UID] == nil {
			visit(k.UID)
		}
	}
}

// EachPod visits the UID and cgroup path of each pod that the last look, or UnannouncedPods, found
// below the roots. It visits a UID twice if a second cgroup of the pod was left behind.
func (c *Reader) EachPod(visit func(uid, path string)) {
	for _, k := range c.pods.order {
		if k.Path != "" {
			visit(k.UID, k.Path)
		}
	}
}

// nodeCritical reports whether a pod that the runtime has not described yet is node-critical, by
// its processes: they have an oom_score_adj of -997 outside the Guaranteed class.
func (c *Reader) nodeCritical(k *podGroup, p *stats.PodStats) bool {
	return p.QOSClass != stats.Guaranteed && p.Cgroup != "" && c.pods.critical(k)
}
