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
	// Bytes are the bytes written to all devices, and those of the page cache that wait for the
	// writeback. Writes through stacked devices (dm, md, loop) count once for each layer.
	Bytes Opt[uint64]
	// Devices are the bytes written to each device.
	Devices []DeviceWrites
	// inodes that fit into the slab memory that holds dentries and inodes. Read files use it too, and
	// the kernel may reclaim it.
	Inodes Opt[uint64]
}

// DeviceWrites are the bytes written to one block device. Device is that of a whole disk, as st_dev.
type DeviceWrites struct{ Device, Bytes uint64 }

// OnDisk returns the bytes written to one disk, and those that wait for the writeback to any disk:
// the kernel does not count them by device. With disk 0, all devices count.
func (w *WrittenStats) OnDisk(disk uint64) Opt[uint64] {
	out := w.Bytes
	for _, d := range w.Devices {
		if disk != 0 && d.Device != disk {
			out.V -= min(d.Bytes, out.V)
		}
	}
	return out
}
