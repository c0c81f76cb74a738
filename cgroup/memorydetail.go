package cgroup

// DetailField names a field of MemoryDetail that a kernel may not have.
type DetailField uint8

// The optional fields of MemoryDetail.
const (
	DetailKernel DetailField = iota
	DetailKernelStack
	DetailPageTables
	DetailSock
	DetailPercpu
	DetailSlabReclaimable
	DetailSlabUnreclaimable
	DetailActiveFile
	DetailUnevictable
	DetailSwapCached
	DetailFileMapped
	DetailFileDirty
	DetailFileWriteback
	DetailPgFault
	DetailPgMajFault
	DetailWorkingsetRefaultAnon
	DetailWorkingsetRefaultFile
)

// DetailSet is a set of fields.
type DetailSet uint32

// Has reports whether a field is in the set.
func (s DetailSet) Has(f DetailField) bool { return s>>f&1 != 0 }

// MemoryDetail is what memory.stat says of a group and all below it, in bytes where nothing else is said (v6.12
// mm/memcontrol.c, memory_stats and memcg_vm_event_stat; Documentation/admin-guide/cgroup-v2.rst). A field that Has does not
// hold is absent, not zero: the kernel is too old, or built without it.
type MemoryDetail struct {
	MemoryStat
	Kernel                uint64 // kernel: all memory the kernel uses for the group, the next six included; since v5.18
	KernelStack           uint64 // kernel_stack: stacks of its threads
	PageTables            uint64 // pagetables: page tables; since v5.11
	Sock                  uint64 // sock: network buffers
	Percpu                uint64 // percpu: per-CPU data; since v5.9
	SlabReclaimable       uint64 // slab_reclaimable: dentries, inodes and other slabs that can be reclaimed
	SlabUnreclaimable     uint64 // slab_unreclaimable: slabs that cannot be reclaimed
	ActiveFile            uint64 // active_file: page cache used of late
	Unevictable           uint64 // unevictable: locked memory (mlock)
	SwapCached            uint64 // swapcached: in swap and in memory at once; since v5.12
	FileMapped            uint64 // file_mapped: page cache that is mapped
	FileDirty             uint64 // file_dirty: page cache not written back yet
	FileWriteback         uint64 // file_writeback: page cache being written back
	PgFault               uint64 // pgfault: page faults, a count
	PgMajFault            uint64 // pgmajfault: page faults that waited for a disk, a count
	WorkingsetRefaultAnon uint64 // workingset_refault_anon: pages that came back from swap soon after they were reclaimed, a count; since v5.9
	WorkingsetRefaultFile uint64 // workingset_refault_file: pages of files that were read again soon after they were reclaimed, a count; since v5.9

	Has DetailSet // the fields above that the file had; those of MemoryStat are always there
}

// optional is where the value of a key belongs; nil if it is not known.
func (d *MemoryDetail) optional(key []byte) (*uint64, DetailField) {
	switch string(key) {
	case "kernel":
		return &d.Kernel, DetailKernel
	case "kernel_stack":
		return &d.KernelStack, DetailKernelStack
	case "pagetables":
		return &d.PageTables, DetailPageTables
	case "sock":
		return &d.Sock, DetailSock
	case "percpu":
		return &d.Percpu, DetailPercpu
	case "slab_reclaimable":
		return &d.SlabReclaimable, DetailSlabReclaimable
	case "slab_unreclaimable":
		return &d.SlabUnreclaimable, DetailSlabUnreclaimable
	case "active_file":
		return &d.ActiveFile, DetailActiveFile
	case "unevictable":
		return &d.Unevictable, DetailUnevictable
	case "swapcached":
		return &d.SwapCached, DetailSwapCached
	case "file_mapped":
		return &d.FileMapped, DetailFileMapped
	case "file_dirty":
		return &d.FileDirty, DetailFileDirty
	case "file_writeback":
		return &d.FileWriteback, DetailFileWriteback
	case "pgfault":
		return &d.PgFault, DetailPgFault
	case "pgmajfault":
		return &d.PgMajFault, DetailPgMajFault
	case "workingset_refault_anon":
		return &d.WorkingsetRefaultAnon, DetailWorkingsetRefaultAnon
	case "workingset_refault_file":
		return &d.WorkingsetRefaultFile, DetailWorkingsetRefaultFile
	}
	return nil, 0
}

// ParseMemoryDetail reads the whole of memory.stat. It fails as ParseMemoryStat does; other lines may be missing. It does not
// allocate.
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
		default:
			var field DetailField
			if dst, field = out.optional(key); dst == nil {
				continue
			}
			out.Has |= 1 << field
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

// MemoryDetail reads memory.stat into out; buf is scratch space of at least 8 KiB. It costs the kernel what MemoryStat does,
// and the reader more: not for the hot path.
func (g *Group) MemoryDetail(buf []byte, out *MemoryDetail) error {
	b, err := g.readKept(memoryStat, buf)
	if err != nil {
		return err
	}
	if err := ParseMemoryDetail(b, out); err != nil {
		return g.parseError("memory.stat", err)
	}
	return nil
}
