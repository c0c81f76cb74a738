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

// Answer is what a probe found out.
type Answer int

// Only Yes and No are conclusive: Unknown says nothing about the kernel.
const (
	Unknown Answer = iota
	Yes
	No
)

var answerNames = [...]string{Unknown: "unknown", Yes: "yes", No: "no"}

// String is "unknown", "yes" or "no".
func (a Answer) String() string {
	if a < 0 || int(a) >= len(answerNames) {
		return fmt.Sprintf("Answer(%d)", int(a))
	}
	return answerNames[a]
}

// Feature is one thing that not every node has.
type Feature struct {
	Name   string // as in Probe's list
	Answer Answer
	Detail string // the value that decided, or why the answer is Unknown or No; may be empty
}

// Features asks the node what it can do, by trying: versions lie, distributions backport. It is
// used by one goroutine at a time.
type Features struct {
	fs        *FS
	proc, sys string
	known     map[string]Feature // conclusive answers to what cannot change while the node is up
}

// NewFeatures prepares the probes of a node: its hierarchy, its /proc (for "self", that of the
// calling process) and its /sys. Nothing is opened before Probe.
func NewFeatures(fs *FS, procMount, sysMount string) *Features {
	return &Features{fs: fs, proc: procMount, sys: sysMount, known: map[string]Feature{}}
}

// featureProbe is how one feature is found out.
type featureProbe struct {
	name    string
	ask     func(f *Features, groups probed) (Answer, string)
	changes bool // at run time, so that even a conclusive answer is asked for again
}

var probes = []featureProbe{
	{name: "cgroup.kill", ask: (*Features).cgroupKill},
	{name: "memory.reclaim", ask: (*Features).memoryReclaim},
	{name: "memory.peak", ask: (*Features).memoryPeak},
	{name: "psi", ask: (*Features).psi},
	{name: "psi windows below 2 s", ask: (*Features).psiWindows},
	{name: "hugetlb controller", ask: (*Features).hugetlb},
	{name: "swap", ask: (*Features).swap, changes: true},
	{name: "memory.swap.current", ask: (*Features).swapCurrent},
	{name: "mglru", ask: (*Features).mglru, changes: true},
	{name: "memory_recursiveprot", ask: (*Features).recursiveProt, changes: true},
}

// Probe asks for every feature, always in this order:
//
//	cgroup.kill            a group is killed by one write (since v5.14)
//	memory.reclaim         a group is made to reclaim by a write (since v5.19)
//	memory.peak            the most that a group used (since v5.19)
//	psi                    the kernel accounts for pressure
//	psi windows below 2 s  this process may have triggers with any window (CAP_SYS_RESOURCE)
//	hugetlb controller     huge pages are accounted for in cgroups
//	swap                   the node has swap space
//	memory.swap.current    the kernel accounts for swap in cgroups
//	mglru                  the multi-generational LRU is on (since v6.1): inactive_file means
//	                       something else
//	memory_recursiveprot   memory.min and memory.low of a group protect all below it (mount option,
//	                       since v5.7)
//
// What was answered Yes or No is not asked again, unless an administrator can change it at run time
// (swap, mglru, memory_recursiveprot); Unknown is. It never fails: what could not be asked is
// Unknown, with the reason.
func (f *Features) Probe() []Feature {
	groups := f.groups()
	defer groups.close()
	out := make([]Feature, 0, len(probes))
	for _, p := range probes {
		feature, ok := f.known[p.name]
		if !ok {
			feature.Name = p.name
			feature.Answer, feature.Detail = p.ask(f, groups)
			if feature.Answer != Unknown && !p.changes {
				f.known[p.name] = feature
			}
		}
		out = append(out, feature)
	}
	return out
}

// probed are the groups that are looked at; either may be nil.
type probed struct {
	root *Group // of the FS, which in a cgroup namespace is not the root of the hierarchy
	// any group that is not the root of the hierarchy, best one with the memory controller
	child *Group
}

func (p probed) close() {
	for _, g := range []*Group{p.root, p.child} {
		if g != nil {
			g.Close()
		}
	}
}

// groups opens the groups to look at.
func (f *Features) groups() (p probed) {
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

// has reports whether a group has a file; Unknown: it cannot be told, the group may be gone.
func (g *Group) has(name string) Answer {
	switch err := unix.Faccessat(g.dir, name, unix.F_OK, 0); {
	case err == nil:
		return Yes
	case err == unix.ENOENT && g.exists():
		return No
	}
	return Unknown
}

// inGroup answers whether a group has a file, given that it has another one which shows that the
// controller is on.
func inGroup(g *Group, name, shows string) (Answer, string) {
	if g == nil {
		return Unknown, "no group to look at"
	}
	switch a := g.has(name); {
	case a == Yes:
		return Yes, ""
	case a == Unknown:
		return Unknown, g.file("") + " cannot be looked at"
	case g.has(shows) != Yes:
		return Unknown, g.file(shows) + " is missing: the controller is off"
	}
	return No, g.file(name) + " is missing"
}

func (f *Features) cgroupKill(p probed) (Answer, string) {
	return inGroup(p.child, "cgroup.kill", "cgroup.procs")
}

// memoryReclaim looks at the root too, which has the file as well; memory.stat shows that the
// controller is on.
func (f *Features) memoryReclaim(p probed) (Answer, string) {
	if a, detail := inGroup(p.root, "memory.reclaim", "memory.stat"); a != Unknown {
		return a, detail
	}
	return inGroup(p.child, "memory.reclaim", "memory.stat")
}

func (f *Features) memoryPeak(p probed) (Answer, string) {
	return inGroup(p.child, "memory.peak", "memory.current")
}

func (f *Features) swapCurrent(p probed) (Answer, string) {
	return inGroup(p.child, "memory.swap.current", "memory.current")
}

func (f *Features) psi(p probed) (Answer, string) {
	if p.root == nil {
		return Unknown, "no group to look at"
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

// shortTrigger is the smallest that v6.1 lets a privileged process have (kernel/sched/psi.c,
// WINDOW_MIN_US); the kernel takes the last byte for the terminator.
const shortTrigger = "some 1000 500000\x00"

// psiWindows sets a trigger up and takes it down at once by closing the file. Without
// CAP_SYS_RESOURCE the kernel refuses windows that are not a multiple of 2 s with EINVAL (v6.12
// kernel/sched/psi.c, psi_trigger_create).
func (f *Features) psiWindows(p probed) (Answer, string) {
	if p.root == nil {
		return Unknown, "no group to look at"
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

func (f *Features) hugetlb(probed) (Answer, string) {
	controllers, err := f.fs.Controllers()
	if err != nil {
		return Unknown, err.Error()
	}
	if slices.Contains(controllers, "hugetlb") {
		return Yes, ""
	}
	return No, "/cgroup.controllers does not name it"
}

func (f *Features) swap(probed) (Answer, string) {
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
	// built without CONFIG_SWAP it says 0 kB (v6.12 fs/proc/meminfo.c)
	return Unknown, path + ": no SwapTotal"
}

// mglru reads the switch: bit 0 is the main one (Documentation/admin-guide/mm/multigen_lru.rst).
func (f *Features) mglru(probed) (Answer, string) {
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
		return Unknown, fmt.Sprintf("%s says %.40q", path, value)
	}
	if bits&1 == 0 {
		return No, value
	}
	return Yes, value
}

func (f *Features) recursiveProt(probed) (Answer, string) {
	path := filepath.Join(f.proc, "self", "mountinfo")
	file, err := seqfile.Open(path)
	if err != nil {
		return Unknown, err.Error()
	}
	defer file.Close()
	var st unix.Stat_t
	_ = unix.Fstat(f.fs.fd, &st) // else the path decides: no mount has the device 0
	options, ok, err := mountOptions(file, f.fs.mount, st.Dev)
	switch {
	case err != nil:
		return Unknown, fmt.Sprintf("%s: %v", path, err)
	case !ok:
		return Unknown, fmt.Sprintf("%s names no cgroup2 mount at %s", path, f.fs.mount)
	case slices.Contains(strings.Split(options, ","), "memory_recursiveprot"):
		return Yes, options
	}
	return No, options
}
