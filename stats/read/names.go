package read

import (
	"jettison/cri"
	"jettison/stats/read/hostroot"
	"jettison/stats/read/podindex"
	"jettison/stats/read/procfs"
)

// What callers of a Reader hand over has its name here, too.
type (
	// Pod is what the runtime tells of one pod.
	Pod = podindex.Pod
	// Index is the runtime's pods by UID.
	Index = podindex.Index
	// HostRoot is the node's own root directory as this process sees it.
	HostRoot = hostroot.Root
	// Proc is a mounted proc file system.
	Proc = procfs.Proc
)

// NewIndex groups a listing by pod.
func NewIndex(l cri.Listing) Index { return podindex.New(l) }

// OpenHostRoot opens a root directory; empty means "/".
func OpenHostRoot(path string) (*HostRoot, error) { return hostroot.Open(path) }

// OpenProc opens the proc file system mounted at a directory; empty means /proc.
func OpenProc(mount string) (*Proc, error) { return procfs.Open(mount) }
