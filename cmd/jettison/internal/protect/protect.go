// Package protect keeps the agent itself alive when its node is at its worst.
package protect

import (
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Limits of this process, for the Go runtime.
const (
	// memoryLimit is soft: near it the collector works harder. It lies well below the container's limit in
	// deploy/daemonset.yaml, and well above what the agent uses (see docs/architecture.md).
	memoryLimit = 32 << 20
	// gcPercent trades a little CPU for a heap that stays near what is live; the agent's is a few MiB.
	gcPercent = 50
)

// Self makes the kernel's OOM killer look elsewhere first, keeps the process's pages in memory and bounds the Go heap. Each
// step that is refused is an error of its own, in words: the agent runs without it, less safely.
func Self() (refused []error) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// -1000 would exempt the process altogether; an agent that leaks must die, but last.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-999"), 0o644); err != nil {
		refused = append(refused, fmt.Errorf("set oom_score_adj to -999: %w (needs CAP_SYS_RESOURCE)", err))
	}
	// ONFAULT: only pages that were touched stay. Without it every reserved page of the Go heap would become resident.
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		refused = append(refused, fmt.Errorf("lock memory: %w (needs CAP_IPC_LOCK)", err))
	}
	return refused
}
