package cgroup

// ReclaimStat holds the lines of memory.stat about memory that could be reclaimed from a group and
// its descendants, in bytes, and about pages that were reclaimed and needed again, as counts since
// the group was created (v6.12 mm/memcontrol.c, memory_stats;
// Documentation/admin-guide/cgroup-v2.rst). Swap-backed memory, including tmpfs and shared memory,
// is on the lists of anonymous memory. With the multi-generational LRU, "active" means the two
// youngest generations, and new anonymous memory starts in one of them. It becomes inactive only
// after the kernel has searched for idle memory (v6.12 include/linux/mm_inline.h, lru_gen_is_active
// and lru_gen_add_folio).
type ReclaimStat struct {
	InactiveAnon, ActiveAnon uint64
	InactiveFile, ActiveFile uint64
	// RefaultAnon and RefaultFile: workingset_refault_anon, workingset_refault_file.
	// HasRefaults: the kernel counts them (v5.9).
	RefaultAnon, RefaultFile uint64
	HasRefaults              bool
}

const reclaimStatKeys = "inactive_anon, active_anon, inactive_file, active_file"

// ParseReclaimStat parses a whole memory.stat. The sizes of the four lists are required. It does
// not allocate.
func ParseReclaimStat(b []byte, out *ReclaimStat) error {
	*out = ReclaimStat{}
	const all, anon, file = 15, 16, 32
	seen := 0
	for len(b) > 0 {
		var key, value []byte
		key, value, b = nextPair(b)
		var dst *uint64
		var bit int
		switch string(key) {
		case "inactive_anon":
			dst, bit = &out.InactiveAnon, 1
		case "active_anon":
			dst, bit = &out.ActiveAnon, 2
		case "inactive_file":
			dst, bit = &out.InactiveFile, 4
		case "active_file":
			dst, bit = &out.ActiveFile, 8
		case "workingset_refault_anon":
			dst, bit = &out.RefaultAnon, anon
		case "workingset_refault_file":
			dst, bit = &out.RefaultFile, file
		default:
			continue
		}
		if err := store(dst, key, value); err != nil {
			*out = ReclaimStat{}
			return err
		}
		seen |= bit
	}
	if seen&all != all {
		*out = ReclaimStat{}
		return missing(reclaimStatKeys)
	}
	out.HasRefaults = seen&(anon|file) == anon|file
	return nil
}

// ReclaimStat reads memory.stat into out; buf is scratch space of at least 8 KiB. It costs as
// much as MemoryDetail.
func (g *Group) ReclaimStat(buf []byte, out *ReclaimStat) error {
	b, err := g.readKept(fileMemoryStat, buf)
	if err != nil {
		return err
	}
	if err := ParseReclaimStat(b, out); err != nil {
		return g.parseError("memory.stat", err)
	}
	return nil
}
