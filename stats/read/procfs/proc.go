// Package procfs reads the node's values from a proc file system.
//
//	proc.go     Proc: tasks, processors, cgroups of processes
//	meminfo.go  memory
//	zoneinfo.go free memory that MemAvailable does not count
//	arcstats.go memory of ZFS' cache that the kernel takes back
//	tree.go     memory of a process and its descendants
package procfs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
)

// Proc is a mounted proc file system, with open descriptors of the files that are read
// repeatedly. Use it from one goroutine at a time, and call Close.
type Proc struct {
	mount   string
	meminfo int
	tasks   [len(taskFiles)]int // -1: not opened yet
	zones   int                 // zoneinfo; -1: not opened yet
	// meminfo describes a container, such as of LXC, and the other files its host
	virtual  bool
	zoneinfo []byte // buffer, grown to the file's size
}

// Open opens the proc file system mounted at a directory, or a recorded one; empty means /proc.
func Open(mount string) (*Proc, error) {
	if mount == "" {
		mount = "/proc"
	}
	name := filepath.Join(mount, "meminfo")
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	p := &Proc{mount: mount, meminfo: fd, zones: -1, virtual: ofFUSE(fd)}
	for i := range p.tasks {
		p.tasks[i] = -1
	}
	return p, nil
}

// Close closes the descriptors.
func (p *Proc) Close() error {
	for _, fd := range append(p.tasks[:], p.zones) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	return unix.Close(p.meminfo)
}

// MemInfo reads meminfo into out; buf is scratch space of at least 8 KiB.
func (p *Proc) MemInfo(buf []byte, out *MemInfo) error {
	n, err := unix.Pread(p.meminfo, buf, 0)
	if err != nil {
		return fmt.Errorf("read %s/meminfo: %w", p.mount, err)
	}
	if err := ParseMemInfo(buf[:n], out); err != nil {
		return fmt.Errorf("parse %s/meminfo: %w", p.mount, err)
	}
	return nil
}

// ofFUSE reports whether a file is of a FUSE file system. lxcfs serves meminfo with the memory of an
// LXC container, but the huge pages of its host (lxcfs src/proc_fuse.c, proc_meminfo_read).
func ofFUSE(fd int) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(fd, &s) == nil && int64(s.Type) == unix.FUSE_SUPER_MAGIC
}

// HugePages reads the bytes of the node's huge pages from meminfo, of any size and also unused ones;
// 0 without huge pages, and in a container whose meminfo is not the kernel's. Neither the working set
// nor MemAvailable contains them. buf is scratch space of at least 8 KiB.
func (p *Proc) HugePages(buf []byte) (uint64, error) {
	if p.virtual {
		return 0, nil
	}
	n, err := unix.Pread(p.meminfo, buf, 0)
	if err != nil {
		return 0, fmt.Errorf("read %s/meminfo: %w", p.mount, err)
	}
	v, err := ParseHugePages(buf[:n])
	if err != nil {
		return 0, fmt.Errorf("parse %s/meminfo: %w", p.mount, err)
	}
	return v, nil
}

// OOMScoreAdj reads a process's oom_score_adj, -1000 to 1000 (proc_pid_oom_score_adj(5)).
func (p *Proc) OOMScoreAdj(pid int) (int64, error) {
	name := filepath.Join(strconv.Itoa(pid), "oom_score_adj")
	var buf [16]byte
	b, err := p.small(name, buf[:])
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("parse %s/%s: %w", p.mount, name, err)
	}
	return v, nil
}

// SelfCgroup returns the path of this process's cgroup below the root of the hierarchy, without
// a leading slash, from self/cgroup ("0::/path", cgroups(7)). In a separate cgroup namespace
// the path is relative to that namespace's root: then ok is false.
func (p *Proc) SelfCgroup() (path string, ok bool, err error) {
	name := filepath.Join(p.mount, "self", "cgroup")
	b, err := os.ReadFile(name)
	if err != nil {
		return "", false, err
	}
	path, ok, found := parseCgroup(b)
	if !found {
		return "", false, fmt.Errorf("parse %s: no cgroup v2 line", name)
	}
	return path, ok, nil
}

// parseCgroup returns the path in the cgroup v2 line of /proc/PID/cgroup. ok is false if the path is
// relative to a cgroup namespace below the root.
func parseCgroup(b []byte) (path string, ok, found bool) {
	for line := range bytes.Lines(b) {
		if rest, found := bytes.CutPrefix(bytes.TrimSpace(line), []byte("0::/")); found {
			return string(rest), len(rest) > 0 && !bytes.HasPrefix(rest, []byte("..")), true
		}
	}
	return "", false, false
}

// CgroupOf returns the path of a process's cgroup below the root of the hierarchy, as SelfCgroup does.
func CgroupOf(proc string, pid int) (path string, ok bool, err error) {
	b, err := os.ReadFile(fmt.Sprintf("%s/%d/cgroup", proc, pid))
	if err != nil {
		return "", false, err
	}
	path, ok, _ = parseCgroup(b)
	return path, ok, nil
}

// StartTicks returns when a process started, in clock ticks since boot: field 22 of
// /proc/PID/stat. The name in field 2 may contain spaces and parentheses.
func StartTicks(proc string, pid int) (uint64, error) {
	name := fmt.Sprintf("%s/%d/stat", proc, pid)
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) > 19 {
		if ticks, ok := cgroup.Decimal(fields[19]); ok {
			return ticks, nil
		}
	}
	return 0, fmt.Errorf("parse %s: %w: no start time", name, ErrMalformed)
}

// clockTick is the unit of StartTicks: USER_HZ is 100 on every supported architecture.
const clockTick = 10 * time.Millisecond

// StartedAt converts StartTicks to a time on the node's current clock.
func StartedAt(boot time.Time, ticks uint64) time.Time {
	return boot.Add(time.Duration(min(ticks, 1<<40)) * clockTick)
}

// taskFiles are the files that PIDs reads: the number of tasks, and the two limits.
var taskFiles = [...]string{"loadavg", "sys/kernel/pid_max", "sys/kernel/threads-max"}

// PIDs reads the number of tasks on the node and the maximum number: loadavg's fourth field, and
// the lower of kernel.pid_max and kernel.threads-max (kubelet
// pkg/kubelet/stats/pidlimit/pidlimit_linux.go, v1.37). Tasks are threads.
func (p *Proc) PIDs(buf []byte) (current, limit uint64, err error) {
	for i, name := range taskFiles {
		b, err := p.kept(&p.tasks[i], name, buf)
		if err != nil {
			return 0, 0, err
		}
		var v uint64
		if i == 0 {
			v, err = ParseLoadAvgTasks(b)
		} else {
			v, err = cgroup.ParseUint(b)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("parse %s/%s: %w", p.mount, name, err)
		}
		switch {
		case i == 0:
			current = v
		case i == 1 || v < limit:
			limit = v
		}
	}
	return current, limit, nil
}

// ParseLoadAvgTasks parses the number of tasks in /proc/loadavg: the 80 in "0.20 0.18 0.12 1/80
// 11206" (fs/proc/loadavg.c).
func ParseLoadAvgTasks(b []byte) (uint64, error) {
	fields := bytes.Fields(b)
	if len(fields) >= 4 {
		if _, total, ok := bytes.Cut(fields[3], []byte("/")); ok {
			if v, ok := cgroup.Decimal(total); ok {
				return v, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: %.60q", ErrMalformed, b)
}

// kept reads a file that fits into buf. It keeps the descriptor, because opening costs several
// times as much as reading.
func (p *Proc) kept(fd *int, name string, buf []byte) (b []byte, err error) {
	if *fd < 0 {
		path := filepath.Join(p.mount, name)
		opened, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
		*fd = opened
	}
	n, err := unix.Pread(*fd, buf, 0)
	if err != nil {
		return nil, fmt.Errorf("read %s/%s: %w", p.mount, name, err)
	}
	return buf[:n], nil
}

// small reads a file that fits into buf.
func (p *Proc) small(name string, buf []byte) ([]byte, error) {
	path := filepath.Join(p.mount, name)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return buf[:n], nil
}

// Stat reads the number of online processors and the boot time from the cpuN and btime lines of
// stat (fs/proc/stat.c).
func (p *Proc) Stat() (cpus int, boot time.Time, err error) {
	name := filepath.Join(p.mount, "stat")
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, boot, err
	}
	for line := range bytes.Lines(b) {
		switch {
		case len(line) > 3 && string(line[:3]) == "cpu" && line[3] >= '0' && line[3] <= '9':
			cpus++
		case bytes.HasPrefix(line, []byte("btime ")):
			if seconds, ok := cgroup.Decimal(bytes.TrimSpace(line[len("btime "):])); ok && seconds < 1<<40 {
				boot = time.Unix(int64(seconds), 0)
			}
		}
	}
	if cpus == 0 {
		return 0, boot, fmt.Errorf("parse %s: %w: no cpu line", name, ErrMalformed)
	}
	return cpus, boot, nil
}

// InCgroup reports whether a process is in a cgroup with the ID of a container or sandbox in
// its path. This check is required before the use of a process ID from the runtime, because
// process IDs are reused.
func InCgroup(proc, id string, pid int) (bool, error) {
	group, err := os.ReadFile(fmt.Sprintf("%s/%d/cgroup", proc, pid))
	return err == nil && id != "" && bytes.Contains(group, []byte(id)), err
}
