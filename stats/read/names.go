package read

import (
	"context"

	"jettison/cri"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/podindex"
	"jettison/stats/read/procfs"
)

// Types that callers pass to a Reader.
type (
	// Pod is the runtime's data of one pod.
	Pod = podindex.Pod
	// Index maps UIDs to the runtime's pods.
	Index = podindex.Index
	// HostRoot is the node's root directory as this process sees it.
	HostRoot = hostroot.Root
	// Proc is a mounted proc file system.
	Proc = procfs.Proc
)

// NewIndex groups a listing by pod.
func NewIndex(l cri.Listing) Index { return podindex.New(l) }

// OpenHostRoot opens a root directory; empty means "/".
func OpenHostRoot(path string) (*HostRoot, error) { return hostroot.Open(path) }

// IsMountRoot reports whether a descriptor is the root of a mount (hostroot.IsMountRoot).
func IsMountRoot(fd int) bool { return hostroot.IsMountRoot(fd) }

// StartTicks returns when a process started, in clock ticks since boot; proc is a mounted proc file
// system.
func StartTicks(proc string, pid int) (uint64, error) { return procfs.StartTicks(proc, pid) }

// Children returns the children of a process, of all its threads; nil if the kernel does not list
// them. After the end of ctx it returns those found until then. An error means that some may be
// missing.
func Children(ctx context.Context, proc string, pid int) ([]int, error) {
	return procfs.Children(ctx, proc, pid, 0)
}

// OpenProc opens the proc file system mounted at a directory; empty means /proc.
func OpenProc(mount string) (*Proc, error) { return procfs.Open(mount) }
