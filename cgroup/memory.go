package cgroup

import "fmt"

// MemoryStat holds the lines of memory.stat that the agent uses, in bytes (mm/memcontrol.c, memory_stats, v6.12). On the
// root cgroup they cover the whole machine.
type MemoryStat struct {
	Anon         uint64 // anonymous memory: freed by killing
	File         uint64 // page cache, tmpfs and shared memory included
	Shmem        uint64 // the part of File that is tmpfs or shared memory: swap-backed, not dropped with its writer
	InactiveFile uint64 // page cache not used of late
}

// ParseMemoryStat reads memory.stat. It fails if one of anon, file, shmem and inactive_file is missing: every cgroup v2
// kernel has them, and a working set made of absent numbers would be a lie. It does not allocate.
func ParseMemoryStat(b []byte, out *MemoryStat) error {
	*out = MemoryStat{}
	const needed = 1<<4 - 1
	seen := 0
	err := keyValues(b, func(key []byte) *uint64 {
		switch string(key) {
		case "anon":
			seen |= 1
			return &out.Anon
		case "file":
			seen |= 2
			return &out.File
		case "shmem":
			seen |= 4
			return &out.Shmem
		case "inactive_file":
			seen |= 8
			return &out.InactiveFile
		}
		return nil
	})
	if err == nil && seen != needed {
		err = fmt.Errorf("%w: anon, file, shmem or inactive_file is missing", ErrMalformed)
	}
	return err
}

// MemoryStat reads memory.stat into out; buf is scratch space of at least 8 KiB. This file is dear: the kernel flushes
// its per-CPU counters first (mm/memcontrol.c, mem_cgroup_flush_stats).
func (g *Group) MemoryStat(buf []byte, out *MemoryStat) error {
	b, err := g.readKept(memoryStat, buf)
	if err != nil {
		return err
	}
	if err := ParseMemoryStat(b, out); err != nil {
		return fmt.Errorf("parse cgroup %s: %w", g.file("memory.stat"), err)
	}
	return nil
}

// MemoryCurrent reads memory.current, in bytes. The root cgroup has none.
func (g *Group) MemoryCurrent(buf []byte) (uint64, error) {
	b, err := g.readKept(memoryCurrent, buf)
	if err != nil {
		return 0, err
	}
	v, err := parseUint(b)
	if err != nil {
		return 0, fmt.Errorf("parse cgroup %s: %w", g.file("memory.current"), err)
	}
	return v, nil
}

// MemoryMax reads memory.max. The root cgroup has none.
func (g *Group) MemoryMax(buf []byte) (Limit, error) {
	b, err := g.read("memory.max", buf)
	if err != nil {
		return Limit{}, err
	}
	limit, err := ParseLimit(b)
	if err != nil {
		return Limit{}, fmt.Errorf("parse cgroup %s: %w", g.file("memory.max"), err)
	}
	return limit, nil
}
