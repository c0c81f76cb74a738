// Package selfprotect keeps the agent itself alive on a node under extreme pressure.
//
//	selfprotect.go  Self, Lock: OOM score, heap limit, locked memory
//	pages.go        SmallPages: restarts the process without huge pages
//	faultaround.go  the kernel maps no pages next to those that are used
//	memory.go       Memory: memory.min of the agent's cgroup and its ancestors
//	oomgroup.go     IsolateOOMKills: OOM kills of single processes in the agent's container
package selfprotect

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits of this process, for the Go runtime.
const (
	// memoryLimit is soft: near it the garbage collector works harder. It is well below the
	// container's limit in deploy/base/daemonset.yaml, and well above the agent's use (see
	// docs/build/performance.md). A full heap of 32 MiB, together with the program and kernel memory,
	// came too close to the container's limit.
	memoryLimit = 24 << 20
	// gcPercent trades some CPU for a heap close to its live size, which is a few MiB.
	gcPercent = 30
)

// Self lowers the process's OOM score and limits the Go heap. profiled keeps heap profiling
// enabled. refused contains one error for each failed step; the agent can run without it, with less
// protection.
func Self(profiled bool) (refused []error) {
	if !profiled {
		// Each sampled stack touches its own page of a table of 1.4 MB (runtime/mprof.go buckHashSize, Go
		// 1.26).
		runtime.MemProfileRate = 0
	}
	if err := noHugePages(); err != nil {
		refused = append(refused, err)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// -1000 would exempt the process altogether; an agent that leaks must die, but last.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-999"), 0o644); err != nil {
		refused = append(refused, fmt.Errorf("set oom_score_adj to -999: %w (needs CAP_SYS_RESOURCE)",
			err))
	}
	return refused
}

// Lock locks the process's pages in memory. It first returns memory that only the start needed:
// heap garbage, and the program's pages, which are read again at their next use. Call it at the end
// of the start.
func Lock() (refused []error) {
	debug.FreeOSMemory()
	dropProgram()
	// ONFAULT locks only touched pages. Without it every reserved page of the Go heap would become
	// resident.
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		refused = append(refused, fmt.Errorf("lock memory: %w (needs CAP_IPC_LOCK)", err))
	}
	return refused
}

// dropProgram drops the mapped pages of the program's file that are not writable. They stay in the
// page cache. From then on only the read-only data that is used becomes resident, if the kernel can
// do that. The neighbors of code pages are still mapped: a kill may need them while the disk is
// busy.
func dropProgram() {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	around, aroundErr := newFaultAround()
	// 00400000-0052f000 r-xp 00000000 08:01 131 /jettison (proc_pid_maps(5))
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 6 || strings.Contains(f[1], "w") || f[5] != program {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		begin, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err1 == nil && err2 == nil && begin < end {
			if aroundErr == nil && !strings.Contains(f[1], "x") {
				_ = around.disable(begin, end) // otherwise more becomes resident
			}
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(begin), uintptr(end-begin), unix.MADV_DONTNEED)
		}
	}
}
