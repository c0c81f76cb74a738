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
// looks, so that a look does not allocate while the set of pods stays the same. It asks nothing
// that may block: see Background for that, and Beside for what the kernel may hold up. Use it from
// one goroutine at a time; Close it.
type Reader struct {
	fs   *cgroup.FS
	proc *procfs.Proc
	pods *podSet
	self string // cgroup of this process, empty: unknown
	root *cgroup.Group
	all  []string      // candidates for the cgroup above all pods
	top  *cgroup.Group // that cgroup; nil: not found yet

	buf []byte // one file's content
	// one memory.stat: here, for a local one would be allocated at each look
	stat   cgroup.MemoryStat
	detail cgroup.MemoryDetail // likewise
	psi    cgroup.PSIStats
	errs   []error
	below  groupBudget   // of the full look under way
	blame  time.Duration // blameFor

	nodeCPU usageSample
	stalls  [3]stallHistory // by resource
}

// NewReader makes a Reader of pods below a kubelet's cgroupRoot ("" and "/" are the same).
func NewReader(fs *cgroup.FS, proc *procfs.Proc, cgroupRoot string) (*Reader, error) {
	root, err := fs.Group("")
	if err != nil {
		return nil, err
	}
	return &Reader{fs: fs, proc: proc, pods: newPodSet(fs, proc, podindex.PodRoots(cgroupRoot)),
		root: root,
		all:  podindex.TopRoots(cgroupRoot), buf: make([]byte, 32<<10), blame: blameFor}, nil
}

// Close gives every descriptor back but those of the FS and Proc it was made with.
func (c *Reader) Close() {
	c.root.Close()
	if c.top != nil {
		c.top.Close()
	}
	c.pods.close()
}

// Node is the cheap look: the node's memory and swap. A source that fails leaves its own values
// absent; the error names it.
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
	if infoErr == nil && statErr == nil {
		return nil
	}
	return errors.Join(infoErr, statErr)
}

// PerCPU adds to a cheap look what MemAvailable does not count. To be called when the look says
// that memory is short: right after a kill much of what came back is there. Without it the look
// stays as it is, on the safe side.
func (c *Reader) PerCPU(out *stats.NodeStats) {
	if free, err := c.proc.PerCPUFree(); err == nil {
		out.Memory.PerCPUFreeBytes = stats.Some(free)
	}
}

// workingSet is usage without what is cheap to drop, floor 0 (kubelet and cAdvisor).
func workingSet(usage, inactiveFile uint64) uint64 { return usage - min(inactiveFile, usage) }

// Memory is the look that an eviction for memory is decided by: the node's memory and each pod's.
// See MemoryView for the pods.
func (c *Reader) Memory(now time.Time, pods podindex.Index, out *stats.Summary) error {
	nodeErr := c.Node(now, &out.Node)
	c.PerCPU(&out.Node)
	return errors.Join(nodeErr, c.MemoryView(now, pods, out))
}

// MemoryView reads the memory, events, pressure and tasks of every pod, those that the runtime has
// announced and those that only the hierarchy knows. Pods are sorted by UID. A pod that goes away
// while it is looked at is in the Summary without readings. It uses the capacity of the Summary's
// node to make sense of requests.
func (c *Reader) MemoryView(now time.Time, pods podindex.Index, out *stats.Summary) error {
	return c.view(now, pods, out, memoryOnly)
}

// Quick is the part of Memory that costs little: of each pod the memory and tasks that it uses, and
// whether anything lives in it. memory.stat, which costs ten times as much and more while others
// are busy (the kernel gathers it from all CPUs; v6.12 mm/memcontrol.c mem_cgroup_flush_stats), is
// left to QuickPod, for those pods of which it matters. It does not allocate.
func (c *Reader) Quick(now time.Time, pods podindex.Index, out *stats.Summary) error {
	nodeErr := c.Node(now, &out.Node)
	c.PerCPU(&out.Node)
	return errors.Join(nodeErr, c.view(now, pods, out, quick))
}

// QuickPod reads the rest of what Memory shows of the pod at an index of the last Quick look.
func (c *Reader) QuickPod(now time.Time, pods podindex.Index, out *stats.Summary, i int) error {
	if i < 0 || i >= len(out.Pods) || i >= len(c.pods.order) ||
		out.Pods[i].PodRef.UID != c.pods.order[i].UID {
		return fmt.Errorf("pod %d of %d was not looked at before", i, len(out.Pods))
	}
	k, p := c.pods.order[i], &out.Pods[i]
	err := c.readPod(now, k, p, memoryOnly)
	c.identify(pods[k.UID], k, p, out.Node.Memory.CapacityBytes)
	if errors.Is(err, cgroup.ErrVanished) || err == errNotOpen {
		return nil
	}
	return err
}

// depth is how much of a pod is read.
type depth int

const (
	quick depth = iota
	memoryOnly
	full
)

// view goes through all pods. What it writes into out.Pods is valid until the next look into the
// same Summary.
func (c *Reader) view(now time.Time, pods podindex.Index, out *stats.Summary, d depth) error {
	out.Time = now
	c.errs, c.below = c.errs[:0], groupBudget{}
	if d == full {
		c.below = newGroupBudget()
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
	if c.pods.beside.late {
		c.errs = append(c.errs, errOpenLate)
	}
	if err := c.below.err(); err != nil {
		c.errs = append(c.errs, err)
	}
	if len(c.errs) == 0 {
		return nil
	}
	return errors.Join(c.errs...)
}

// identify joins what the runtime knows of a pod, nil if nothing.
func (c *Reader) identify(known *podindex.Pod, k *podGroup, p *stats.PodStats,
	capacity stats.Opt[uint64]) {
	if known != nil {
		known.Describe(p, capacity)
	}
	if (known == nil || !known.Scored()) && (p.Populated.V || !p.Populated.OK) {
		p.NodeCritical = c.nodeCritical(k, p)
	}
	switch {
	// by definition, whatever else is known
	case p.QOSClass == stats.BestEffort && !p.MemoryRequest.OK:
		p.MemoryRequest = stats.Some(stats.Range{})
	case p.QOSClass == stats.Guaranteed && p.Memory.LimitBytes.OK:
		// The kubelet keeps a Guaranteed pod's limit, which is its request, here; it follows a resize in
		// place. Without a kubelet it may say "max": then what the runtime told counts.
		p.MemoryRequest = stats.Some(stats.Exactly(p.Memory.LimitBytes.V))
	}
	p.Self = c.self != "" && p.Cgroup != "" && podindex.Within(c.self, p.Cgroup)
}

// Strangers visits the UIDs of pods that the hierarchy has and the runtime has not told of. It
// reads no file, and lists nothing right after Refresh.
func (c *Reader) Strangers(pods podindex.Index, visit func(uid string)) {
	if c.pods.beside.recent() {
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

// EachPod visits the pods that the last look, or Strangers, found below the roots: UID, and path of
// the cgroup. A UID with two cgroups, one of them left behind, comes twice.
func (c *Reader) EachPod(visit func(uid, path string)) {
	for _, k := range c.pods.order {
		if k.Path != "" {
			visit(k.UID, k.Path)
		}
	}
}

// nodeCritical asks the processes of a pod for what the runtime has not told yet: -997 outside the
// Guaranteed class.
func (c *Reader) nodeCritical(k *podGroup, p *stats.PodStats) bool {
	return p.QOSClass != stats.Guaranteed && p.Cgroup != "" && c.pods.critical(k)
}
