package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/seqfile"
)

// Answer is the result of a probe.
type Answer int

// Only Yes and No are conclusive. Unknown allows no conclusion about the kernel.
const (
	Unknown Answer = iota
	Yes
	No
)

var answerNames = [...]string{Unknown: "unknown", Yes: "yes", No: "no"}

// String returns "unknown", "yes" or "no".
func (a Answer) String() string {
	if a < 0 || int(a) >= len(answerNames) {
		return fmt.Sprintf("Answer(%d)", int(a))
	}
	return answerNames[a]
}

// Feature is one capability that not every node has.
type Feature struct {
	Name   string // as in Probe's list
	Answer Answer
	Detail string // the deciding value, or the reason for Unknown or No; may be empty
}

// Features probes the capabilities of a node by trying them, because kernel versions are
// unreliable: distributions backport features. Use it from one goroutine at a time.
type Features struct {
	fs        *FS
	proc, sys string
	known     map[string]Feature // conclusive answers that cannot change while the node is up
}

// NewFeatures prepares the probes of a node: its hierarchy, its /proc and its /sys. The /proc must
// be that of the calling process's PID namespace, because of /proc/self. NewFeatures opens no file;
// Probe does.
func NewFeatures(fs *FS, procMount, sysMount string) *Features {
	return &Features{fs: fs, proc: procMount, sys: sysMount, known: map[string]Feature{}}
}

// featureProbe is the probe of one feature.
type featureProbe struct {
	name    string
	detect  func(f *Features, groups probeGroups) (Answer, string)
	changes bool // the answer may change at run time, so even Yes and No are probed again
}

var probes = []featureProbe{
	{name: "cgroup.kill", detect: (*Features).cgroupKill},
	{name: "memory.reclaim", detect: (*Features).memoryReclaim},
	{name: "memory.peak", detect: (*Features).memoryPeak},
	{name: "psi", detect: (*Features).psi},
	{name: "psi windows below 2 s", detect: (*Features).psiWindows},
	{name: "hugetlb controller", detect: (*Features).hugetlb},
	{name: "swap", detect: (*Features).swap, changes: true},
	{name: "memory.swap.current", detect: (*Features).swapCurrent},
	{name: "mglru", detect: (*Features).mglru, changes: true},
	{name: "memory_recursiveprot", detect: (*Features).recursiveProt, changes: true},
}

// Probe probes every feature, always in this order:
//
//	cgroup.kill            one write kills a group (since v5.14)
//	memory.reclaim         a write makes a group reclaim (since v5.19)
//	memory.peak            the peak usage of a group (since v5.19)
//	psi                    the kernel accounts for pressure
//	psi windows below 2 s  this process may set triggers with any window (CAP_SYS_RESOURCE)
//	hugetlb controller     huge pages are accounted for in cgroups
//	swap                   the node has swap space
//	memory.swap.current    the kernel accounts for swap in cgroups
//	mglru                  the multi-generational LRU is on (since v6.1), which changes the meaning
//	                       of inactive_file
//	memory_recursiveprot   memory.min and memory.low of a group protect its descendants (mount
//	                       option, since v5.7)
//
// The answers Yes and No are kept, unless an administrator can change them at run time (swap,
// mglru, memory_recursiveprot). An Unknown is probed again. Probe never fails: if a probe is not
// possible, the answer is Unknown, with the reason.
func (f *Features) Probe() []Feature {
	groups := f.groups()
	defer groups.close()
	out := make([]Feature, 0, len(probes))
	for _, p := range probes {
		feature, ok := f.known[p.name]
		if !ok {
			feature.Name = p.name
			feature.Answer, feature.Detail = p.detect(f, groups)
			if feature.Answer != Unknown && !p.changes {
				f.known[p.name] = feature
			}
		}
		out = append(out, feature)
	}
	return out
}

// probeGroups are the groups to inspect; either may be nil.
type probeGroups struct {
	root *Group // root of the FS; in a cgroup namespace that is not the root of the hierarchy
	// any group that is not the root of the hierarchy, preferably with the memory controller
	child *Group
}

func (p probeGroups) close() {
	for _, g := range []*Group{p.root, p.child} {
		if g != nil {
			g.Close()
		}
	}
}

// groups opens the groups to inspect.
func (f *Features) groups() (p probeGroups) {
	p.root, _ = f.fs.Group("")
	// The root of the hierarchy has no cgroup.events (v6.12 kernel/cgroup/cgroup.c,
	// CFTYPE_NOT_ON_ROOT).
	if p.root != nil && p.root.has("cgroup.events") == Yes {
		p.child, _ = f.fs.Group("")
		return p
	}
	_ = f.fs.Children("", make([]byte, 4096), func(name string) {
		if p.child != nil && p.child.has("memory.current") == Yes {
			return
		}
		g, err := f.fs.Group(name)
		switch {
		case err != nil:
		case !g.exists() || p.child != nil && g.has("memory.current") != Yes:
			g.Close()
		default:
			if p.child != nil {
				p.child.Close()
			}
			p.child = g
		}
	})
	return p
}

// has reports whether a group has a file; Unknown: the group may be gone.
func (g *Group) has(name string) Answer {
	switch err := unix.Faccessat(g.dir, name, unix.F_OK, 0); {
	case err == nil:
		return Yes
	case err == unix.ENOENT && g.exists():
		return No
	}
	return Unknown
}

// inGroup reports whether a group has a file. The existence of a second file, shows, proves that
// the controller is enabled.
func inGroup(g *Group, name, shows string) (Answer, string) {
	if g == nil {
		return Unknown, "no cgroup to inspect"
	}
	switch a := g.has(name); {
	case a == Yes:
		return Yes, ""
	case a == Unknown:
		return Unknown, g.file("") + " cannot be inspected"
	case g.has(shows) != Yes:
		return Unknown, g.file(shows) + " is missing: the controller is off"
	}
	return No, g.file(name) + " is missing"
}

func (f *Features) cgroupKill(p probeGroups) (Answer, string) {
	return inGroup(p.child, "cgroup.kill", "cgroup.procs")
}

// memoryReclaim inspects the root first, which has the file too. memory.stat proves that the
// controller is enabled.
func (f *Features) memoryReclaim(p probeGroups) (Answer, string) {
	if a, detail := inGroup(p.root, "memory.reclaim", "memory.stat"); a != Unknown {
		return a, detail
	}
	return inGroup(p.child, "memory.reclaim", "memory.stat")
}

func (f *Features) memoryPeak(p probeGroups) (Answer, string) {
	return inGroup(p.child, "memory.peak", "memory.current")
}

func (f *Features) swapCurrent(p probeGroups) (Answer, string) {
	return inGroup(p.child, "memory.swap.current", "memory.current")
}

func (f *Features) psi(p probeGroups) (Answer, string) {
	if p.root == nil {
		return Unknown, "no cgroup to inspect"
	}
	var stats PSIStats
	err := p.root.Pressure(Memory, make([]byte, 1024), &stats)
	switch {
	case err == nil:
		return Yes, ""
	case errors.Is(err, ErrPressureOff):
		return No, "the kernel was booted with psi=0"
	case errors.Is(err, os.ErrNotExist) && p.root.has("cgroup.pressure") == Yes:
		return Unknown, "/cgroup.pressure switched it off for this group"
	case errors.Is(err, os.ErrNotExist):
		return No, "/memory.pressure is missing: built without PSI, or booted with psi=0"
	}
	return Unknown, err.Error()
}

// shortTrigger is the smallest trigger that v6.1 allows for a privileged process
// (kernel/sched/psi.c, WINDOW_MIN_US); the kernel treats the last byte as the terminator.
const shortTrigger = "some 1000 500000\x00"

// psiWindows sets a trigger and removes it immediately by closing the file. Without
// CAP_SYS_RESOURCE the kernel rejects windows that are not a multiple of 2 s with EINVAL (v6.12
// kernel/sched/psi.c, psi_trigger_create).
func (f *Features) psiWindows(p probeGroups) (Answer, string) {
	if p.root == nil {
		return Unknown, "no cgroup to inspect"
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(p.root.dir, &st); err != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
		return Unknown, "not a cgroup v2 hierarchy: nothing is written to it"
	}
	fd, err := p.root.openFile("memory.pressure", unix.O_RDWR)
	if err != nil {
		return Unknown, err.Error()
	}
	defer unix.Close(fd)
	for {
		switch _, err = unix.Write(fd, []byte(shortTrigger)); err {
		case nil:
			return Yes, ""
		case unix.EINTR:
			continue
		case unix.EINVAL:
			return No, "CAP_SYS_RESOURCE is missing"
		}
		return Unknown, fmt.Sprintf("write a trigger to cgroup /memory.pressure: %v", err)
	}
}

func (f *Features) hugetlb(probeGroups) (Answer, string) {
	controllers, err := f.fs.Controllers()
	if err != nil {
		return Unknown, err.Error()
	}
	if slices.Contains(controllers, "hugetlb") {
		return Yes, ""
	}
	return No, "not listed in /cgroup.controllers"
}

func (f *Features) swap(probeGroups) (Answer, string) {
	path := filepath.Join(f.proc, "meminfo")
	text, err := os.ReadFile(path)
	if err != nil {
		return Unknown, err.Error()
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "SwapTotal:"); ok {
			value = strings.TrimSpace(value)
			kib, ok := Decimal([]byte(strings.TrimSuffix(value, " kB")))
			switch {
			case !ok:
				return Unknown, fmt.Sprintf("%s: SwapTotal is %.40q", path, value)
			case kib == 0:
				return No, value
			}
			return Yes, value
		}
	}
	// a kernel without CONFIG_SWAP shows 0 kB (v6.12 fs/proc/meminfo.c)
	return Unknown, path + ": no SwapTotal"
}

// mglru reads lru_gen/enabled: bit 0 is the main switch
// (Documentation/admin-guide/mm/multigen_lru.rst).
func (f *Features) mglru(probeGroups) (Answer, string) {
	mm := filepath.Join(f.sys, "kernel", "mm")
	path := filepath.Join(mm, "lru_gen", "enabled")
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if _, err := os.Stat(mm); err != nil {
			return Unknown, err.Error()
		}
		return No, path + " is missing"
	case err != nil:
		return Unknown, err.Error()
	}
	value := strings.TrimSpace(string(text))
	bits, err := strconv.ParseUint(value, 0, 32)
	if err != nil {
		return Unknown, fmt.Sprintf("%s contains %.40q", path, value)
	}
	if bits&1 == 0 {
		return No, value
	}
	return Yes, value
}

func (f *Features) recursiveProt(probeGroups) (Answer, string) {
	path := filepath.Join(f.proc, "self", "mountinfo")
	file, err := seqfile.Open(path)
	if err != nil {
		return Unknown, err.Error()
	}
	defer file.Close()
	var st unix.Stat_t
	_ = unix.Fstat(f.fs.fd, &st) // after an error the path decides, because no mount has device 0
	options, ok, err := mountOptions(file, f.fs.mount, st.Dev)
	switch {
	case err != nil:
		return Unknown, fmt.Sprintf("%s: %v", path, err)
	case !ok:
		return Unknown, fmt.Sprintf("%s lists no cgroup2 mount at %s", path, f.fs.mount)
	case slices.Contains(strings.Split(options, ","), "memory_recursiveprot"):
		return Yes, options
	}
	return No, options
}
