package stats

import "time"

// FsStats is one file system, by statfs(2); sizes in bytes.
type FsStats struct {
	Time           time.Time
	Path           string      // that was asked, in the host's view
	Device         uint64      // st_dev
	AvailableBytes Opt[uint64] // f_bavail: what an ordinary user may still write
	CapacityBytes  Opt[uint64] // f_blocks
	// f_blocks - f_bfree; of an image store in a Summary: the runtime's word, where it has one
	UsedBytes  Opt[uint64]
	InodesFree Opt[uint64] // f_ffree; absent where the file system has no fixed number of inodes
	Inodes     Opt[uint64] // f_files
	InodesUsed Opt[uint64]
}

// Layout says which of the node's file systems are the same (kubelet
// pkg/kubelet/eviction/helpers.go, v1.36).
type Layout struct {
	DedicatedImageFs bool // images are not on the device of the kubelet's root directory
	SplitContainerFs bool // writable layers are not on the device of the images
}

// FsUsage is what a part of a pod takes of a file system.
type FsUsage struct {
	Time       time.Time // when it was measured; zero: it was not
	UsedBytes  uint64
	InodesUsed uint64
	// a lower bound: a part could not be reached (too deep, moved about, unreadable), or its turn
	// ended before
	Partial bool
	// Kept is what of a lower bound was not counted now but in an earlier look, which found more: it
	// may have been moved, or be gone.
	KeptBytes, KeptInodes uint64
	// when that was counted, or an older part of it; zero: nothing is kept
	KeptTime time.Time
}

// Counted is what was found when it was measured, in bytes: a limit of the pod's own knows nothing
// of what is kept.
func (u *FsUsage) Counted() uint64 { return u.UsedBytes - min(u.KeptBytes, u.UsedBytes) }

// VolumeStats is one local volume of a pod.
type VolumeStats struct {
	Name string
	FsUsage
	Memory bool // it is a tmpfs: it takes memory, no disk, and outlives the pod's containers
	Quota  bool // the file system's own count, by project quota
}

// PodStorageStats is what a pod takes of the node's disks. The parts are measured one after another
// in the background, so each has a time of its own; Time is the oldest.
type PodStorageStats struct {
	Time time.Time
	// logs, writable layers, local volumes on disk and etc-hosts, as counted: without what is kept of
	// earlier looks
	UsedBytes  Opt[uint64]
	InodesUsed Opt[uint64]
	Partial    bool // a part is (FsUsage.Partial)
	// the walk was ended by its turn's end: a longer one finds more, whatever becomes of the pod
	Cut bool
	// Unnamed is what no directory has any more. The sums above do not have it either: limits of pods
	// know nothing of it.
	Unnamed UnnamedStats
	// ExitedLayers is what the writable layers of containers hold that have exited, with what the
	// runtime keeps beside its layers (the sandbox's resolv.conf and hostname, volumes that images
	// declare), and Files what the kubelet keeps for the pod and mounts into its containers: etc-hosts
	// and termination messages. As the kubelet's, limits know of nothing of these but etc-hosts, so
	// nothing else of them is in the sums above, but for the layers of containers that live and are
	// not listed in the PodStats: these are in both.
	ExitedLayers, Files Opt[FsUsage]
	Logs                Opt[FsUsage]
	Volumes             []VolumeStats
	// MemoryVolumesBytes is what its memory-backed volumes hold.
	MemoryVolumesBytes Opt[uint64]
}

// UnnamedStats is what files without a name take that a pod's processes keep: unlinked, but still
// open or mapped. It is looked for only while a disk is short, and now and then while it rests:
// each has the time of that look; absent: it was not looked for. By the file system for whose
// signals it counts; of those that are one, the same.
type UnnamedStats struct{ Node, Image, Container Opt[FsUsage] }

// Merge adds what was measured beside; the older time counts.
func (u *FsUsage) Merge(o FsUsage) {
	if o.Time.IsZero() { // not measured: it is not there
		return
	}
	if u.Time.IsZero() || o.Time.Before(u.Time) {
		u.Time = o.Time
	}
	u.UsedBytes, u.InodesUsed, u.Partial = u.UsedBytes+o.UsedBytes, u.InodesUsed+o.InodesUsed,
		u.Partial || o.Partial
	u.KeptBytes, u.KeptInodes = u.KeptBytes+o.KeptBytes, u.KeptInodes+o.KeptInodes
}
