// Package selfprotect keeps the agent itself alive when its node is at its worst.
//
//	selfprotect.go   Self, Lock: the process
//	pages.go     SmallPages: it is run without huge ones
//	memory.go    Memory: its memory, in its cgroup and those above
//	oomgroup.go  Apart: others' commands in its container
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
	// memoryLimit is soft: near it the collector works harder. It lies well below the container's
	// limit in deploy/base/daemonset.yaml, and well above what the agent uses (see
	// docs/build/performance.md): with its program, and with what the kernel has for it, a heap of 32
	// MiB that was full came too close to that.
	memoryLimit = 24 << 20
	// gcPercent trades a little CPU for a heap that stays near what is live; the agent's is a few MiB.
	gcPercent = 30
)

// Self makes the kernel's OOM killer look elsewhere first and bounds the Go heap. profiled:
// somebody may ask what the heap is made of. Each step that is refused is an error of its own, in
// words: the agent runs without it, less safely.
func Self(profiled bool) (refused []error) {
	if !profiled {
		// Each stack that is sampled has a page of a table of 1.4 MB for itself (runtime/mprof.go
		// buckHashSize, Go 1.26).
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

// Lock keeps the process's pages in memory from now on. What only the start needed is given back
// first: garbage of the heap, and the program's pages, of which those that are used come back at
// their next use. So it comes when the start is over.
func Lock() (refused []error) {
	debug.FreeOSMemory()
	dropProgram()
	// ONFAULT: only pages that were touched stay. Without it every reserved page of the Go heap would
	// become resident.
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		refused = append(refused, fmt.Errorf("lock memory: %w (needs CAP_IPC_LOCK)", err))
	}
	return refused
}

// dropProgram unmaps the pages of the program's file that cannot have been written to. They lie in
// the page cache still.
func dropProgram() {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
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
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(begin), uintptr(end-begin), unix.MADV_DONTNEED)
		}
	}
}
