package stats

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"jettison/cgroup"
)

// Collector reads a node's cgroups and /proc into Summaries. It keeps descriptors and buffers between looks. Use it from
// one goroutine at a time; Close it.
type Collector struct {
	fs     *cgroup.FS
	proc   *Proc
	roots  []string // cgroups whose children are pods
	self   string   // cgroup of this process, empty: unknown
	root   *cgroup.Group
	groups map[string]*cgroup.Group // of pods, by path
	buf    []byte                   // one file's content
	names  []byte                   // one directory's entries
	stat   cgroup.MemoryStat        // one memory.stat: here, for a local one would be allocated at each look
}

// NewCollector makes a collector for pods below a kubelet's cgroupRoot ("" and "/" are the same).
func NewCollector(fs *cgroup.FS, proc *Proc, cgroupRoot string) (*Collector, error) {
	root, err := fs.Group("")
	if err != nil {
		return nil, err
	}
	return &Collector{
		fs: fs, proc: proc, roots: PodRoots(cgroupRoot), root: root, groups: map[string]*cgroup.Group{},
		buf: make([]byte, 32<<10), names: make([]byte, 8<<10),
	}, nil
}

// Close gives every descriptor back but those of the FS and Proc it was made with.
func (c *Collector) Close() {
	c.root.Close()
	for _, g := range c.groups {
		g.Close()
	}
	c.groups = nil
}

// Node is the cheap look: the node's memory. A source that fails leaves its own values absent; the error names it.
func (c *Collector) Node(now time.Time, out *NodeStats) error {
	m := &out.Memory
	*m = NodeMemoryStats{Time: now}
	var info MemInfo
	stat := &c.stat
	infoErr := c.proc.MemInfo(c.buf, &info)
	if infoErr == nil {
		m.CapacityBytes, m.KernelAvailableBytes = info.Total, info.Available
	}
	statErr := c.root.MemoryStat(c.buf, stat)
	if statErr == nil {
		m.WorkingSetBytes = Some(workingSet(stat.Anon+stat.File, stat.InactiveFile))
	}
	if infoErr == nil && statErr == nil {
		return nil
	}
	return errors.Join(infoErr, statErr)
}

// PerCPU adds to a cheap look what MemAvailable does not count. To be called when the look says that memory is short: right
// after a kill much of what came back is there. Without it the look stays as it is, on the safe side.
func (c *Collector) PerCPU(out *NodeStats) {
	if free, err := c.proc.PerCPUFree(); err == nil {
		out.Memory.PerCPUFreeBytes = Some(free)
	}
}

// workingSet is usage without what is cheap to drop, floor 0 (kubelet and cAdvisor).
func workingSet(usage, inactiveFile uint64) uint64 { return usage - min(inactiveFile, usage) }

// Collect is the dear look: the node's memory and every pod, those that the runtime has announced and those that only the
// hierarchy knows. Pods are sorted by UID. A pod that goes away while it is looked at is in the Summary without readings.
func (c *Collector) Collect(now time.Time, pods Index, out *Summary) error {
	out.Time = now
	out.Pods = out.Pods[:0]
	errs := []error{c.Node(now, &out.Node)}
	c.PerCPU(&out.Node)
	seen := make(map[string]bool, len(pods))
	for _, root := range c.roots {
		err := c.fs.Children(root, c.names, func(name string) {
			if p, ok := ParsePodCgroup(root, name); ok {
				seen[p.UID] = true
				out.Pods = append(out.Pods, PodStats{PodRef: PodReference{UID: p.UID}, Cgroup: p.Path, QOSClass: p.QOSClass})
			}
		})
		errs = append(errs, err)
	}
	for uid, p := range pods {
		if !seen[uid] && p.ready() { // its cgroup is elsewhere, or unknown
			out.Pods = append(out.Pods, p.elsewhere())
		}
	}
	slices.SortFunc(out.Pods, func(a, b PodStats) int { return cmp.Compare(a.PodRef.UID, b.PodRef.UID) })
	for i := range out.Pods {
		p := &out.Pods[i]
		known := pods[p.PodRef.UID]
		if known != nil {
			known.describe(p, out.Node.Memory.CapacityBytes)
		}
		if known == nil || !known.scored() {
			p.NodeCritical = c.nodeCritical(p)
		}
		if p.QOSClass == BestEffort { // by definition, whatever else is known
			p.MemoryRequest = Some(MemoryRequest{})
		}
		p.Self = c.self != "" && (c.self == p.Cgroup || strings.HasPrefix(c.self, p.Cgroup+"/")) && p.Cgroup != ""
		if err := c.Pod(now, p); err != nil && !errors.Is(err, cgroup.ErrVanished) {
			errs = append(errs, err)
		}
	}
	c.forget(out.Pods)
	return errors.Join(errs...)
}

// Strangers visits the UIDs of pods that the hierarchy has and the runtime has not told of. It lists directories and reads no
// file.
func (c *Collector) Strangers(pods Index, visit func(uid string)) {
	for _, root := range c.roots {
		_ = c.fs.Children(root, c.names, func(name string) {
			if p, ok := ParsePodCgroup(root, name); ok && pods[p.UID] == nil {
				visit(p.UID)
			}
		})
	}
}

// Pod reads one pod's cgroup into p.Memory and p.Populated. On an error both are absent.
func (c *Collector) Pod(now time.Time, p *PodStats) error {
	p.Memory, p.Populated, p.CgroupID = PodMemoryStats{Time: now}, Opt[bool]{}, cgroup.ID{}
	if p.Cgroup == "" { // the root: not a pod's
		return cgroup.ErrVanished
	}
	// A kept group whose cgroup was removed answers ErrVanished; its path may have a successor by now.
	for try := 0; ; try++ {
		g := c.groups[p.Cgroup]
		if g == nil {
			var err error
			if g, err = c.fs.Group(p.Cgroup); err != nil {
				return err
			}
			c.groups[p.Cgroup] = g
		}
		err := readPod(g, c.buf, &c.stat, p)
		if err == nil {
			p.CgroupID = g.ID()
			return nil
		}
		p.Memory, p.Populated = PodMemoryStats{Time: now}, Opt[bool]{}
		if !errors.Is(err, cgroup.ErrVanished) || try > 0 {
			return err
		}
		g.Close()
		delete(c.groups, p.Cgroup)
	}
}

func readPod(g *cgroup.Group, buf []byte, stat *cgroup.MemoryStat, p *PodStats) error {
	current, err := g.MemoryCurrent(buf)
	if err != nil {
		return err
	}
	if err := g.MemoryStat(buf, stat); err != nil {
		return err
	}
	events, err := g.Events(buf)
	if err != nil {
		return err
	}
	p.Populated = Some(events.Populated)
	m := &p.Memory
	m.UsageBytes, m.WorkingSetBytes = Some(current), Some(workingSet(current, stat.InactiveFile))
	m.AnonBytes, m.ShmemBytes = Some(stat.Anon), Some(stat.Shmem)
	if p.QOSClass == Guaranteed {
		// The kubelet keeps a Guaranteed pod's limit, which is its request, here; it follows a resize in place. Without a kubelet
		// it may say "max": then what the runtime told counts.
		if limit, err := g.MemoryMax(buf); err == nil && !limit.Unlimited {
			p.MemoryRequest = Some(MemoryRequest{Min: limit.Bytes, Max: limit.Bytes})
		}
	}
	return nil
}

// forget closes the groups of pods that are not there any more.
func (c *Collector) forget(pods []PodStats) {
	if len(c.groups) <= len(pods) {
		return
	}
	here := make(map[string]bool, len(pods))
	for _, p := range pods {
		here[p.Cgroup] = true
	}
	for path, g := range c.groups {
		if !here[path] {
			g.Close()
			delete(c.groups, path)
		}
	}
}

// nodeCritical asks the processes of a pod for what the runtime has not told yet: -997 outside the Guaranteed class. (The sandbox's own process has -998.)
func (c *Collector) nodeCritical(p *PodStats) (critical bool) {
	if p.QOSClass == Guaranteed {
		return false
	}
	c.processes(p.Cgroup, func(pid int) {
		if adj, err := c.proc.OOMScoreAdj(pid); err == nil && adj == oomScoreAdjGuaranteed {
			critical = true
		}
	})
	return critical
}

// processes visits every process of a cgroup and of those one level below it, which are a pod's containers.
func (c *Collector) processes(path string, visit func(pid int)) {
	paths := []string{path}
	_ = c.fs.Children(path, c.names, func(name string) { paths = append(paths, path+"/"+name) })
	for _, p := range paths {
		if g, err := c.fs.Group(p); err == nil {
			_ = g.Procs(c.buf, visit)
			g.Close()
		}
	}
}

// FindSelf finds the cgroup of this process, so that Collect can mark its pod. First where /proc says; where a cgroup
// namespace of our own hides that, by looking for our process id in every pod. An error means that neither told: a process
// outside every pod is none.
func (c *Collector) FindSelf() error {
	pid := os.Getpid()
	path, ok, err := c.proc.SelfCgroup()
	if err != nil {
		return fmt.Errorf("find own cgroup: %w", err)
	}
	if ok {
		found := false
		if g, err := c.fs.Group(path); err == nil {
			_ = g.Procs(c.buf, func(p int) { found = found || p == pid })
			g.Close()
		}
		if found {
			c.self = path
			return nil
		}
	}
	for _, root := range c.roots {
		var pods []string
		if err := c.fs.Children(root, c.names, func(name string) {
			if p, ok := ParsePodCgroup(root, name); ok {
				pods = append(pods, p.Path)
			}
		}); err != nil {
			return fmt.Errorf("find own cgroup: %w", err)
		}
		for _, pod := range pods {
			c.processes(pod, func(p int) {
				if p == pid {
					c.self = pod
				}
			})
		}
	}
	if c.self == "" && !ok && path != "" {
		return fmt.Errorf("find own cgroup: /proc/self/cgroup says /%s, and no pod holds process %d", path, pid)
	}
	return nil
}

// Self is the cgroup that FindSelf found; empty: this process is in no pod, or not found.
func (c *Collector) Self() string { return c.self }
