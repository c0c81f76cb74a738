package stats

import "time"

// Kernel counters of a cgroup, as plain values: package cgroup reads them, package read copies
// them.

// CgroupID identifies a cgroup's directory. A path may be reused; an inode number on its device
// is not reused while the directory is open.
type CgroupID struct{ Dev, Ino uint64 }

// PSIData is one line of a pressure file.
type PSIData struct {
	// share of the last 10, 60 and 300 seconds in which tasks stalled, in percent
	Avg10, Avg60, Avg300 float64
	// time stalled since the cgroup was created; the kernel counts microseconds
	Total time.Duration
}

// PSIStats holds a pressure file (v6.12 kernel/sched/psi.c, psi_show).
type PSIStats struct {
	Some PSIData // at least one task stalled
	Full PSIData // all tasks stalled at the same time

	// Lines present: cpu.pressure has no full line before v5.13, irq.pressure no some line.
	HasSome, HasFull bool
}

// MemoryEvents holds the counters of memory.events or memory.events.local since the cgroup was
// created (v6.12 mm/memcontrol.c, __memory_events_show).
type MemoryEvents struct {
	Low          uint64 // times reclaimed although below memory.low
	High         uint64 // times throttled at memory.high
	Max          uint64 // times about to exceed memory.max
	OOM          uint64 // times at memory.max after reclaim failed; a kill may follow
	OOMKill      uint64 // processes that any OOM killer killed
	OOMGroupKill uint64 // whole-group kills (memory.oom.group); since v5.17, 0 before
}

// IOStat holds the bytes that a cgroup and its descendants have read from and written to all
// devices since the cgroup was created.
type IOStat struct {
	ReadBytes, WriteBytes uint64
}

// WrittenStats estimates what a pod's processes have written, from kernel counters of its cgroup.
// The differences between two looks count, not the values. Files that were removed or overwritten
// count too.
type WrittenStats struct {
	// bytes written to all devices, and bytes of the page cache that wait for the writeback
	Bytes Opt[uint64]
	// inodes that fit into the slab memory that holds dentries and inodes. Read files use it too, and
	// the kernel may reclaim it.
	Inodes Opt[uint64]
}
