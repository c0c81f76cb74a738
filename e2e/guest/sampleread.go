package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"jettison/e2e/guestapi"
)

// memoryFiles reads the node's memory on kept file descriptors into one buffer, without allocating.
type memoryFiles struct {
	meminfo, rootStat, vmstat, zoneinfo int

	info [len(infoNames)]field // of meminfo
	stat [3]field              // of the root's memory.stat: anon, file, inactive_file
	oom  [1]field              // of vmstat

	buf [64 << 10]byte
}

// field is a value in a file of lines, with its last position, which is tried first.
type field struct {
	name  string
	at    int // of the line
	value int64
}

// infoNames are the parsed lines of /proc/meminfo.
var infoNames = [...]string{
	"MemTotal:", "MemAvailable:", "Buffers:", "Cached:", "SwapCached:", "Inactive(file):", "AnonPages:",
	"MemFree:", "Slab:", "KernelStack:", "PageTables:", "Percpu:",
}

// Indices of infoNames.
const (
	memTotal = iota
	memAvailable
	buffers
	pageCache
	swapCached
	inactiveFile
	anonPages
	memFree // from here on for accounted only
)

// openMemory opens the files below the mounts of proc and of cgroup2.
func openMemory(proc, cgroups string) (*memoryFiles, error) {
	m := &memoryFiles{meminfo: -1, rootStat: -1, vmstat: -1, zoneinfo: -1}
	for _, f := range []struct {
		path string
		fd   *int
	}{{proc + "/meminfo", &m.meminfo}, {cgroups + "/memory.stat", &m.rootStat}, {proc + "/vmstat", &m.vmstat}, {proc + "/zoneinfo", &m.zoneinfo}} {
		var err error
		if *f.fd, err = unix.Open(f.path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			m.close()
			return nil, fmt.Errorf("open %s: %w", f.path, err)
		}
	}
	for i, name := range infoNames {
		m.info[i].name = name
	}
	for i, name := range []string{"anon ", "file ", "inactive_file "} {
		m.stat[i].name = name
	}
	m.oom[0].name = "oom_kill "
	return m, nil
}

func (m *memoryFiles) close() {
	for _, fd := range []int{m.meminfo, m.rootStat, m.vmstat, m.zoneinfo} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// all returns all figures, with each file read once.
func (m *memoryFiles) all() (out guestapi.Memory, err error) {
	out.MonotonicNS = monotonic()
	if err := m.readInfo(); err != nil {
		return out, err
	}
	out.Total, out.MemAvailable = m.info[memTotal].value, m.info[memAvailable].value
	if out.WorkingSet, err = m.workingSet(); err != nil {
		return out, err
	}
	if out.PerCPUFree, err = m.perCPUFree(); err != nil {
		return out, err
	}
	err = m.read(m.vmstat, m.oom[:], 1)
	out.OOMKills = m.oom[0].value
	return out, err
}

func (m *memoryFiles) readInfo() error { return m.read(m.meminfo, m.info[:], 1<<10) }

// estimate returns approximately workingSet, from meminfo alone: the same pages, counted by zone
// and not by cgroup.
func (m *memoryFiles) estimate() int64 {
	v := &m.info
	return v[anonPages].value + v[pageCache].value + v[buffers].value + v[swapCached].value - v[inactiveFile].value
}

// accounted returns the pages with a use known to meminfo. It lacks pages on per-CPU lists and a
// few others, which are constant: so those lists have grown by the decrease of this sum.
func (m *memoryFiles) accounted() (sum int64) {
	v := &m.info
	for i := memFree; i < len(v); i++ {
		sum += v[i].value
	}
	return sum + v[anonPages].value + v[pageCache].value + v[buffers].value + v[swapCached].value
}

// workingSet returns the kubelet's: anon + file - inactive_file of the root's memory.stat. That
// read sums up all cgroups.
func (m *memoryFiles) workingSet() (int64, error) {
	if err := m.read(m.rootStat, m.stat[:], 1); err != nil {
		return 0, err
	}
	return m.stat[0].value + m.stat[1].value - m.stat[2].value, nil
}

var errNoField = errors.New("a line is missing, or has no number")

// read reads lines "NAME  VALUE ..." and multiplies the values.
func (m *memoryFiles) read(fd int, fields []field, scale int64) error {
	n, errno := pread(fd, m.buf[:])
	if errno != 0 {
		return errno
	}
	if !scan(m.buf[:n], fields, scale) {
		return errNoField
	}
	return nil
}

// scan finds each field at the start of a line. It returns false if one is missing.
func scan(b []byte, fields []field, scale int64) bool {
	for i := range fields {
		f := &fields[i]
		if !startsAt(b, f.at, f.name) {
			if f.at = find(b, f.name); f.at < 0 {
				f.at = 0
				return false
			}
		}
		v, ok := number(b[f.at+len(f.name):])
		if !ok {
			return false
		}
		f.value = v * scale
	}
	return true
}

// startsAt reports whether a line of b with this name starts at this offset.
func startsAt(b []byte, at int, name string) bool {
	return at+len(name) <= len(b) && string(b[at:at+len(name)]) == name && (at == 0 || b[at-1] == '\n')
}

// find returns the start of the line with a name, or -1.
func find(b []byte, name string) int {
	for at := 0; at < len(b); {
		if startsAt(b, at, name) {
			return at
		}
		next := bytes.IndexByte(b[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	return -1
}

// number reads a decimal after spaces.
func number(b []byte) (v int64, ok bool) {
	i := 0
	for i < len(b) && b[i] == ' ' {
		i++
	}
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		if v > 1<<52 {
			return 0, false
		}
		v, ok = v*10+int64(b[i]-'0'), true
	}
	return v, ok
}

var pageSize = int64(os.Getpagesize())

var countLine = []byte(" count:")

// perCPUFree sums the "count: PAGES" lines of /proc/zoneinfo: free pages on per-CPU lists, which MemAvailable does not count.
func (m *memoryFiles) perCPUFree() (int64, error) {
	n, errno := pread(m.zoneinfo, m.buf[:])
	if errno != 0 {
		return 0, errno
	}
	pages, ok := sumCounts(m.buf[:n])
	if !ok {
		return 0, errNoField
	}
	return pages * pageSize, nil
}

// sumCounts adds up the "count:" lines of zoneinfo; "high:" and the like follow each.
func sumCounts(b []byte) (pages int64, ok bool) {
	for {
		i := bytes.Index(b, countLine)
		if i < 0 {
			return pages, ok
		}
		b = b[i+len(countLine):]
		v, isNumber := number(b)
		if !isNumber {
			return 0, false
		}
		pages, ok = pages+v, true
	}
}

// pread reads a file from its start without Go's scheduler, which would hand its P to another
// thread.
func pread(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	return int(n), errno
}

// monotonic returns CLOCK_MONOTONIC in nanoseconds.
func monotonic() int64 {
	var ts unix.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}
