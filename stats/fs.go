package stats

import "time"

// FsStats describes one file system as statfs(2) reports it. Sizes are in bytes.
type FsStats struct {
	Time           time.Time
	Path           string      // the path given to statfs, in the host's view
	Device         uint64      // st_dev
	Disk           uint64      // device by which io.stat counts its I/O; 0: unknown
	AvailableBytes Opt[uint64] // f_bavail: available to unprivileged users; absent without a size
	CapacityBytes  Opt[uint64] // f_blocks
	// f_blocks - f_bfree. In a Summary, the value of an image store is the runtime's, if reported.
	UsedBytes  Opt[uint64]
	InodesFree Opt[uint64] // f_ffree; absent if the file system has no fixed number of inodes
	Inodes     Opt[uint64] // f_files
	InodesUsed Opt[uint64]
}

// Layout records which of the node's file systems are the same (kubelet
// pkg/kubelet/eviction/helpers.go, v1.37).
type Layout struct {
	DedicatedImageFs bool // images are not on the device of the kubelet's root directory
	SplitContainerFs bool // writable layers are not on the device of the images
}

// FsUsage is the usage of one file system by one part of a pod.
type FsUsage struct {
	Time       time.Time // of the measurement; zero: not measured
	UsedBytes  uint64
	InodesUsed uint64
	// Partial: the usage is a lower bound, because a part could not be reached (too deep, moved
	// during the walk, unreadable), or the turn ended first.
	Partial bool
	// KeptBytes and KeptInodes are the share of a lower bound that comes from an earlier,
	// larger measurement. Those files may have moved or been removed.
	KeptBytes, KeptInodes uint64
	// KeptTime is the time of the earlier measurement, or of its oldest part; zero: no part is kept.
	KeptTime time.Time
}

// Counted returns the bytes found by the last measurement alone. The pod's own limits ignore
// the kept share.
func (u *FsUsage) Counted() uint64 { return u.UsedBytes - min(u.KeptBytes, u.UsedBytes) }

// VolumeStats describes one local volume of a pod.
type VolumeStats struct {
	Name string
	FsUsage
	Memory bool // in memory, not on disk: a tmpfs or huge pages. Outlives the pod's containers
	// HugePages: a hugetlbfs. Its memory is in no figure of a pod's memory.
	HugePages bool
	Quota     bool // counted by the file system (project quota)
}

// PodStorageStats is a pod's usage of the node's disks. The parts are measured one after
// another in the background, so each has its own time; Time is the oldest.
type PodStorageStats struct {
	Time time.Time
	// UsedBytes and InodesUsed cover logs, writable layers, local volumes on disk and
	// etc-hosts, without the share kept from earlier measurements.
	UsedBytes  Opt[uint64]
	InodesUsed Opt[uint64]
	Partial    bool // at least one part is partial (FsUsage.Partial)
	// Cut is true if the turn ended before the walk. A longer walk would find more, even in a pod
	// that has ended.
	Cut bool
	// Unnamed is the usage of files that no directory names any more. The sums above exclude it,
	// because limits of pods ignore it.
	Unnamed UnnamedStats
	// ExitedLayers covers the writable layers of containers that have exited, and the files that the
	// runtime keeps outside its layers (the sandbox's resolv.conf and hostname, volumes that images
	// declare). Files covers the files that the kubelet keeps for the pod and mounts into its
	// containers: etc-hosts and termination messages. Of these, limits count only etc-hosts, as in
	// the kubelet, so the sums above exclude the rest. Exception: the writable layers of live
	// containers that PodStats does not list are in both.
	ExitedLayers, Files Opt[FsUsage]
	Logs                Opt[FsUsage]
	Volumes             []VolumeStats
	// MemoryVolumesBytes is the content of the pod's volumes on tmpfs.
	MemoryVolumesBytes Opt[uint64]
}

// UnnamedStats is the usage of files without a name that a pod's processes keep open or mapped
// after the unlink. The agent searches for them while a disk is short, and rarely otherwise. Each
// value has the time of the search; absent: not searched. Each field is named after the file system
// of the affected signals. If two of these are the same file system, both fields have the same
// value.
type UnnamedStats struct{ Node, Image, Container Opt[FsUsage] }

// Merge adds another measurement and keeps the older time.
func (u *FsUsage) Merge(o FsUsage) {
	if o.Time.IsZero() { // not measured
		return
	}
	if u.Time.IsZero() || o.Time.Before(u.Time) {
		u.Time = o.Time
	}
	u.UsedBytes, u.InodesUsed, u.Partial = u.UsedBytes+o.UsedBytes, u.InodesUsed+o.InodesUsed,
		u.Partial || o.Partial
	u.KeptBytes, u.KeptInodes = u.KeptBytes+o.KeptBytes, u.KeptInodes+o.KeptInodes
}
