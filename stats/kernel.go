package stats

import "time"

// What the kernel tells of a cgroup, as plain values: package cgroup reads it, package read carries
// it over.

// CgroupID is the identity of a cgroup's directory: a path may be used again, an inode number on
// its device is not while the directory is open.
type CgroupID struct{ Dev, Ino uint64 }

// PSIData is one line of a pressure file.
type PSIData struct {
	// share of the last 10, 60 and 300 seconds in which tasks stalled, per cent
	Avg10, Avg60, Avg300 float64
	// stalled since the cgroup was made; the kernel counts microseconds
	Total time.Duration
}

// PSIStats is a pressure file (v6.12 kernel/sched/psi.c, psi_show).
type PSIStats struct {
	Some PSIData // at least one task stalled
	Full PSIData // all tasks stalled at once

	// Which lines there were: cpu.pressure has no full line before v5.13, irq.pressure no some line.
	HasSome, HasFull bool
}

// MemoryEvents is memory.events or memory.events.local: how often each has happened since the
// cgroup was made (v6.12 mm/memcontrol.c, __memory_events_show).
type MemoryEvents struct {
	Low          uint64 // reclaimed although below memory.low
	High         uint64 // throttled for memory.high
	Max          uint64 // about to go beyond memory.max
	OOM          uint64 // at memory.max with reclaim failing; a kill may follow
	OOMKill      uint64 // processes that any OOM killer killed
	OOMGroupKill uint64 // whole-group kills (memory.oom.group); since v5.17, 0 before
}

// IOStat is what a cgroup and all below it moved to and from all devices since it was made.
type IOStat struct {
	ReadBytes, WriteBytes uint64
}
