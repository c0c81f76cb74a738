package read

import (
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

// readPod reads one pod: its cgroup, and the containers outside it. On an error no value of the pod is
// set.
func (c *Reader) readPod(now time.Time, k *podGroup, p *stats.PodStats, d depth) error {
	err := c.readGroup(now, k, p, d)
	if len(k.outside) == 0 && !k.unlocated {
		return err
	}
	return c.addOutside(now, k, p, d, err)
}

// addOutside adds the containers outside a pod's cgroup; err is the error of that cgroup. A process in
// a shared cgroup keeps the pod alive, and the pod uses at least the process's memory. A pod whose
// processes are not known at all counts as one without a cgroup: only the runtime can kill it.
func (c *Reader) addOutside(now time.Time, k *podGroup, p *stats.PodStats, d depth, err error) error {
	own, id := p.Cgroup, p.CgroupID
	missing, shared := errors.Is(err, cgroup.ErrVanished), sharedMemory{}
	if missing {
		err = nil
	}
	measured := id != (stats.CgroupID{}) // then err is of other files
	unread := !missing && !measured
	outside := make([]stats.OutsideContainer, 0, len(k.outside))
	for i, o := range k.outside {
		one := k.listed[i]
		if o.Path == "" {
			if unix.Kill(one.Process.PID, 0) == unix.ESRCH {
				continue
			}
			anon, shmem, readErr := c.processes.read(one.Process, &o.memory)
			if readErr != unix.ESRCH { // otherwise another process has its PID
				outside = append(outside, one)
				shared.add(anon, shmem, readErr)
			}
			continue
		}
		partErr := c.readGroup(now, o, &c.part, d)
		if errors.Is(partErr, cgroup.ErrVanished) {
			continue // the container has exited
		}
		if err == nil {
			err = partErr
		}
		one.CgroupID = c.part.CgroupID
		outside = append(outside, one)
		switch {
		case one.CgroupID == (stats.CgroupID{}):
			unread = true
		case measured:
			p.Add(&c.part)
		default:
			measured = true
			containers := append(p.Containers[:0], c.part.Containers...)
			*p = c.part
			p.Containers, p.LocalEvents = containers, stats.Opt[stats.MemoryEvents]{}
			p.Memory.LimitBytes = stats.Opt[uint64]{}
		}
	}
	if missing && (len(outside) > 0 || k.unlocated) {
		own = ""
	}
	alive := measured && p.Populated.V
	switch {
	case unread:
		k.reset(p)
	case !alive && shared.processes > 0:
		k.reset(p)
		p.Populated = stats.Some(true)
		p.Memory.Time, p.Memory.Quick = now, d == quick
	case !alive && k.unlocated:
		k.reset(p)
		p.Populated = stats.Some(true) // the runtime's word, which comes before that of an object's phase
		own, id, outside = "", stats.CgroupID{}, nil
	case !measured:
		err = cgroup.ErrVanished
	}
	if !unread && shared.read > 0 {
		p.Memory.AtLeast(shared.anon, shared.shmem)
	}
	p.Cgroup, p.CgroupID, p.Outside = own, id, outside
	return err
}

// sharedMemory sums up the memory of a pod's processes in shared cgroups.
type sharedMemory struct {
	processes, read int // those alive, and those with known memory
	anon, shmem     uint64
}

func (s *sharedMemory) add(anon, shmem uint64, err error) {
	s.processes++
	if err == nil {
		s.read++
		s.anon, s.shmem = s.anon+anon, s.shmem+shmem
	}
}

// readGroup reads one cgroup, of a pod or of a container outside its pod's. On an error no value is
// set.
func (c *Reader) readGroup(now time.Time, k *podGroup, p *stats.PodStats, d depth) error {
	k.reset(p)
	if k.Path == "" { // the pod has no known cgroup, and the root must not be read instead
		return cgroup.ErrVanished
	}
	// An open group returns ErrVanished after its cgroup was removed. A new cgroup may have the same
	// path by now.
	for try := 0; ; try++ {
		if k.group == nil {
			if err := c.pods.open(k); err != nil {
				return err
			}
		}
		var err error
		if d == quick {
			err = c.readQuick(now, k.group, p)
		} else {
			err = c.readMemory(now, k.group, p, d == full)
		}
		var rest error // errors of other files do not affect the memory values
		if err == nil && d == full {
			if rest = c.readRest(now, k, p); errors.Is(rest, cgroup.ErrVanished) {
				err = rest
			}
		}
		if err == nil {
			p.CgroupID = stats.CgroupID(k.group.ID())
			return rest
		}
		k.reset(p)
		if !errors.Is(err, cgroup.ErrVanished) {
			return err
		}
		k.close()
		k.vanished = true
		if try > 0 {
			return err
		}
	}
}

// readQuick reads an upper bound of a pod's working set, and its tasks.
func (c *Reader) readQuick(now time.Time, g *cgroup.Group, p *stats.PodStats) error {
	m := &p.Memory
	current, err := g.MemoryCurrent(c.buf)
	if err != nil {
		return err
	}
	events, err := g.Events(c.buf)
	if err != nil {
		return err
	}
	m.Time, m.Quick = now, true
	m.UsageBytes, m.WorkingSetBytes = stats.Some(current), stats.Some(current)
	p.Populated = stats.Some(events.Populated)
	if p.Threads, err = optional(g.PIDsCurrent(c.buf)); err != nil {
		return err
	}
	if p.QOSClass == stats.Guaranteed {
		m.LimitBytes, err = limit(g.MemoryMax(c.buf))
	}
	return err
}

// readMemory reads the values of the memory view.
func (c *Reader) readMemory(now time.Time, g *cgroup.Group, p *stats.PodStats, full bool) error {
	m := &p.Memory
	m.Time = now
	current, err := g.MemoryCurrent(c.buf)
	if err != nil {
		return err
	}
	if full {
		if err := g.MemoryDetail(c.buf, &c.detail); err != nil {
			return err
		}
		c.stat = c.detail.MemoryStat
	} else if err := g.MemoryStat(c.buf, &c.stat); err != nil {
		return err
	}
	events, err := g.Events(c.buf)
	if err != nil {
		return err
	}
	m.UsageBytes, m.WorkingSetBytes = stats.Some(current),
		stats.Some(workingSet(current, c.stat.InactiveFile))
	m.AnonBytes, m.ShmemBytes = stats.Some(c.stat.Anon), stats.Some(c.stat.Shmem)
	p.Populated = stats.Some(events.Populated)
	if p.Events, err = memoryEvents(g.MemoryEvents(c.buf)); err != nil {
		return err
	}
	if p.Threads, err = optional(g.PIDsCurrent(c.buf)); err != nil {
		return err
	}
	if p.MemoryPressure, err = c.psiOf(g, cgroup.Memory); err != nil {
		return err
	}
	if full || p.QOSClass == stats.Guaranteed {
		m.LimitBytes, err = limit(g.MemoryMax(c.buf))
	}
	return err
}

// optional turns the error for a missing file into an absent value. The file is missing if its
// controller is disabled, the kernel is too old, or PSI is disabled.
func optional[T any](v T, err error) (stats.Opt[T], error) {
	switch {
	case err == nil:
		return stats.Some(v), nil
	case errors.Is(err, cgroup.ErrVanished): // which may also be os.ErrNotExist
		return stats.Opt[T]{}, err
	case errors.Is(err, os.ErrNotExist), errors.Is(err, cgroup.ErrPressureOff):
		return stats.Opt[T]{}, nil
	}
	return stats.Opt[T]{}, err
}

// limit turns "max" into an absent value.
func limit(l cgroup.Limit, err error) (stats.Opt[uint64], error) {
	v, err := optional(l, err)
	return stats.Opt[uint64]{V: v.V.Bytes, OK: v.OK && !v.V.Unlimited}, err
}

func memoryEvents(events cgroup.MemoryEvents, err error) (stats.Opt[stats.MemoryEvents], error) {
	return optional(stats.MemoryEvents(events), err)
}

func (c *Reader) psiOf(g *cgroup.Group, r cgroup.Resource) (stats.Opt[stats.PSIStats], error) {
	err := g.Pressure(r, c.buf, &c.psi)
	p := &c.psi
	return optional(stats.PSIStats{Some: stats.PSIData(p.Some), Full: stats.PSIData(p.Full),
		HasSome: p.HasSome, HasFull: p.HasFull}, err)
}

// readRest reads the values that only the full look has. A file that cannot be read leaves its own
// values absent.
func (c *Reader) readRest(now time.Time, k *podGroup, p *stats.PodStats) error {
	g, m := k.group, &p.Memory
	m.PageFaults, m.MajorPageFaults = faults(&c.detail)
	m.FreedBytes = stats.Some(freed(&c.detail))
	m.KernelBytes = stats.Opt[uint64]{V: kernel(&c.detail), OK: c.detail.HasKernel}
	pages := c.detail.RefaultAnon + c.detail.RefaultFile
	m.RefaultBytes = stats.Opt[uint64]{V: pages * uint64(os.Getpagesize()), OK: c.detail.HasRefaults}
	var errs [7]error
	p.LocalEvents, errs[0] = memoryEvents(g.MemoryEventsLocal(c.buf))
	p.CPUPressure, errs[1] = c.psiOf(g, cgroup.CPU)
	p.IOPressure, errs[2] = c.psiOf(g, cgroup.IO)
	io, devices, ioErr := ioByDevice(g, c.buf)
	p.IO, errs[3] = optional(stats.IOStat(io), ioErr)
	p.Written = written(&c.detail, p.IO)
	p.Written.Devices = devices
	p.CPU, errs[4] = c.cpuStats(now, g, &k.usage)
	m.SwapBytes, errs[5] = optional(g.MemorySwapCurrent(c.buf))
	if k.container != "" {
		errs[6] = c.outsideContainer(now, k, p)
	} else {
		errs[6] = c.containers(now, k, p)
	}
	return errors.Join(errs[:]...)
}

func faults(d *cgroup.MemoryDetail) (all, major stats.Opt[uint64]) {
	return stats.Opt[uint64]{V: d.PgFault, OK: d.HasPgFault}, stats.Opt[uint64]{V: d.PgMajFault,
		OK: d.HasPgMajFault}
}

// kernel returns the bytes that the kernel holds and cannot reclaim.
func kernel(d *cgroup.MemoryDetail) uint64 {
	return d.Kernel - min(d.SlabReclaimable, d.Kernel) + d.Sock
}

// slabPerInode is the slab memory of one file in the cache, at least: an inode and a dentry.
const slabPerInode = 1 << 10

// written returns what a pod has written. Bytes are written to a device up to 30 s after a process
// wrote them to the page cache (vm.dirty_expire_centisecs), but the file system reserves the space
// immediately.
func written(d *cgroup.MemoryDetail, io stats.Opt[stats.IOStat]) stats.WrittenStats {
	cached := stats.SaturatingAdd(d.FileDirty, d.FileWriteback)
	return stats.WrittenStats{
		Bytes:  stats.Opt[uint64]{V: stats.SaturatingAdd(io.V.WriteBytes, cached), OK: io.OK},
		Inodes: stats.Some(d.SlabReclaimable / slabPerInode),
	}
}

// ioByDevice reads a pod's I/O: the sum, and the writes to each device.
func ioByDevice(g *cgroup.Group, buf []byte) (sum cgroup.IOStat, devices []stats.DeviceWrites,
	err error) {
	err = g.IODevices(buf, func(major, minor uint32, s cgroup.IOStat) {
		sum.Add(s)
		devices = append(devices, stats.DeviceWrites{Device: unix.Mkdev(major, minor),
			Bytes: s.WriteBytes})
	})
	return sum, devices, err
}

// freed returns the bytes that killing the processes behind a memory.stat would free.
func freed(d *cgroup.MemoryDetail) stats.Range {
	// absent counters are 0 here, because they are not known to be freed
	sure := d.Anon + d.PageTables + d.KernelStack
	return stats.Range{Min: sure, Max: sure + d.Shmem}
}

func (c *Reader) cpuStats(now time.Time, g *cgroup.Group, last *usageSample) (out stats.CPUStats,
	err error) {
	usage, err := optional(g.CPUUsage(c.buf))
	if !usage.OK || err != nil {
		return out, err
	}
	return stats.CPUStats{Time: now, Usage: usage, NanoCores: last.rate(now, usage.V)}, nil
}

// containers reads the cgroups in a pod's cgroup. It leaves out containers that vanish meanwhile or
// exceed the limit. The pod's own values stay complete, because they come from the pod's cgroup.
func (c *Reader) containers(now time.Time, k *podGroup, p *stats.PodStats) error {
	p.Containers = p.Containers[:0]
	total, countErr := c.countProcesses(k.Path)
	if errors.Is(countErr, cgroup.ErrVanished) {
		return countErr
	}
	errs, whole := []error{countErr}, true
	var names []string
	if err := c.fs.ChildrenUntil(k.Path, c.pods.names, func(name string) bool {
		if whole = len(names) < maxContainers || c.groups.take(); whole {
			names = append(names, name)
		}
		return whole
	}); err != nil {
		return err
	}
	if !whole {
		c.groups.exceed(k.Path)
	}
	for _, name := range names {
		container, err := c.container(now, k, k.Path+"/"+name, name)
		if errors.Is(err, cgroup.ErrVanished) {
			continue
		}
		whole = whole && container.Processes.OK
		errs = append(errs, err)
		total += container.Processes.V
		p.Containers = append(p.Containers, container)
	}
	for name := range k.containers {
		if !slices.Contains(names, name) {
			delete(k.containers, name)
		}
	}
	err := errors.Join(errs...)
	p.Processes = stats.Opt[uint64]{V: total, OK: whole && err == nil}
	return err
}

// outsideContainer reads the container of a cgroup outside its pod's.
func (c *Reader) outsideContainer(now time.Time, k *podGroup, p *stats.PodStats) error {
	one, err := c.container(now, k, k.Path, k.container)
	if errors.Is(err, cgroup.ErrVanished) {
		return err
	}
	p.Containers, p.Processes = append(p.Containers[:0], one), one.Processes
	return err
}

// containerID returns the runtime's ID from the name of a container's cgroup: the name itself with
// the cgroupfs driver, "cri-containerd-ID.scope" or "crio-ID.scope" with the systemd driver. With a
// systemd name and the cgroupfs driver it is "SLICE:cri-containerd:ID".
// CRI-O's monitor process of a container has a separate cgroup, which keeps its name as ID.
func containerID(name string) string {
	if at := strings.LastIndexByte(name, ':'); at >= 0 {
		return name[at+1:]
	}
	unit, isUnit := strings.CutSuffix(name, ".scope")
	switch {
	case strings.HasPrefix(unit, "crio-conmon-"):
		return unit
	case isUnit:
		return unit[strings.LastIndexByte(unit, '-')+1:]
	}
	return strings.TrimPrefix(unit, "crio-")
}

// container reads one container. A file that cannot be read leaves its own values absent.
func (c *Reader) container(now time.Time, k *podGroup, path, name string) (out stats.ContainerStats,
	err error) {
	g, err := c.fs.Group(path)
	if err != nil {
		return out, err
	}
	defer g.Close()
	out.ID = containerID(name)
	if k.containers == nil {
		k.containers = map[string]usageSample{}
	}
	var errs [7]error
	last := k.containers[name]
	out.CPU, errs[0] = c.cpuStats(now, g, &last)
	k.containers[name] = last
	m := &out.Memory
	m.Time = now
	m.UsageBytes, errs[1] = optional(g.MemoryCurrent(c.buf))
	statErr := g.MemoryDetail(c.buf, &c.detail)
	detail, err := optional(&c.detail, statErr)
	if errs[2] = err; detail.OK && m.UsageBytes.OK {
		m.WorkingSetBytes, m.AnonBytes = stats.Some(workingSet(m.UsageBytes.V, c.detail.InactiveFile)),
			stats.Some(c.detail.Anon)
		m.PageFaults, m.MajorPageFaults = faults(&c.detail)
	}
	m.SwapBytes, errs[3] = optional(g.MemorySwapCurrent(c.buf))
	m.LimitBytes, errs[4] = limit(g.MemoryMax(c.buf))
	m.SwapLimitBytes, errs[6] = limit(g.MemorySwapMax(c.buf))
	left := maxCounted
	n, whole, err := c.countTree(path, &left)
	errs[5], out.Processes = err, stats.Opt[uint64]{V: n, OK: whole && err == nil}
	return out, errors.Join(errs[:]...)
}

// countProcesses counts the lines of cgroup.procs: processes, not threads.
func (c *Reader) countProcesses(path string) (n uint64, err error) {
	g, err := c.fs.Group(path)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	err = g.Procs(c.buf, func(int) { n++ })
	// a threaded cgroup: its processes are listed at the root of its threaded domain (cgroups(7))
	if errors.Is(err, unix.EOPNOTSUPP) {
		return 0, nil
	}
	return n, err
}
