package cgroup

// MemoryDetail holds further lines of memory.stat, for a group and its descendants. Values are
// in bytes unless stated otherwise (v6.12 mm/memcontrol.c, memory_stats and
// memcg_vm_event_stat; Documentation/admin-guide/cgroup-v2.rst).
type MemoryDetail struct {
	MemoryStat
	// Kernel (kernel, since v5.18) is all kernel memory of the group, including pipes, without
	// Sock. Sock (sock) is socket buffers. SlabReclaimable (slab_reclaimable) is the part of
	// Kernel that the kernel can reclaim: dentries and inodes.
	Kernel, Sock, SlabReclaimable uint64

	// FileDirty (file_dirty) is page cache that was written to and is not yet on a device,
	// FileWriteback (file_writeback) page cache that is being written back.
	FileDirty, FileWriteback uint64

	KernelStack uint64 // kernel_stack: kernel stacks of the group's threads
	PageTables  uint64 // pagetables: page tables; since v5.11, 0 before
	PgFault     uint64 // pgfault: page faults, a count
	PgMajFault  uint64 // pgmajfault: page faults that waited for a disk, a count
	// workingset_refault_anon: pages refaulted soon after their reclaim, a count; since v5.9
	RefaultAnon uint64
	RefaultFile uint64 // workingset_refault_file: refaulted page cache, a count
	// HasPgFault, HasPgMajFault, HasRefaults, HasKernel: the kernel has these counters. Without
	// them the values are absent, not zero.
	HasPgFault, HasPgMajFault, HasRefaults, HasKernel bool
}

// ParseMemoryDetail parses the whole of memory.stat. It requires the same keys as ParseMemoryStat;
// other lines may be missing. It does not allocate.
func ParseMemoryDetail(b []byte, out *MemoryDetail) error {
	*out = MemoryDetail{}
	seen := 0
	for len(b) > 0 {
		var key, value []byte
		key, value, b = nextPair(b)
		var dst *uint64
		switch string(key) {
		case "anon":
			dst, seen = &out.Anon, seen|1
		case "file":
			dst, seen = &out.File, seen|2
		case "shmem":
			dst, seen = &out.Shmem, seen|4
		case "inactive_file":
			dst, seen = &out.InactiveFile, seen|8
		case "kernel":
			dst, out.HasKernel = &out.Kernel, true
		case "sock":
			dst = &out.Sock
		case "slab_reclaimable":
			dst = &out.SlabReclaimable
		case "file_dirty":
			dst = &out.FileDirty
		case "file_writeback":
			dst = &out.FileWriteback
		case "kernel_stack":
			dst = &out.KernelStack
		case "pagetables":
			dst = &out.PageTables
		case "pgfault":
			dst, out.HasPgFault = &out.PgFault, true
		case "pgmajfault":
			dst, out.HasPgMajFault = &out.PgMajFault, true
		case "workingset_refault_anon":
			dst = &out.RefaultAnon
		case "workingset_refault_file":
			dst, out.HasRefaults = &out.RefaultFile, true
		default:
			continue
		}
		if err := store(dst, key, value); err != nil {
			return err
		}
	}
	if seen != 15 {
		return missing(memoryStatKeys)
	}
	return nil
}

// MemoryDetail reads memory.stat into out; buf is scratch space of at least 8 KiB. The read costs
// the kernel as much as MemoryStat, but parsing costs more, so do not use it on the hot path.
func (g *Group) MemoryDetail(buf []byte, out *MemoryDetail) error {
	b, err := g.readKept(fileMemoryStat, buf)
	if err != nil {
		return err
	}
	if err := ParseMemoryDetail(b, out); err != nil {
		return g.parseError("memory.stat", err)
	}
	return nil
}
