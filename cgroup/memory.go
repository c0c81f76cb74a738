package cgroup

// MemoryStat holds the lines of memory.stat that the agent uses, in bytes (mm/memcontrol.c,
// memory_stats, v6.12). In the root cgroup they cover the whole machine.
type MemoryStat struct {
	Anon uint64 // anonymous memory: freed by killing
	File uint64 // page cache, tmpfs and shared memory included
	// the part of File that is tmpfs or shared memory: swap-backed, and may outlive the process that
	// wrote it
	Shmem        uint64
	InactiveFile uint64 // page cache not used recently
}

const memoryStatKeys = "anon, file, shmem, inactive_file"

// ParseMemoryStat parses memory.stat up to the last of its four keys, in any order: about the first
// 22 of 60 lines of v6.12. It ignores the lines after them. It returns an error if a key is
// missing: every cgroup v2 kernel has all four, and a working set computed without one would be
// wrong. It does not allocate.
//
// Every look parses this file for every pod, so the parser distinguishes lines by their first
// byte and scans them with a plain loop: most are too short for a vectorized search.
func ParseMemoryStat(b []byte, out *MemoryStat) error {
	*out = MemoryStat{}
	const anon, file, shmem, inactiveFile, all = 1, 2, 4, 8, 15
	for seen := 0; len(b) > 0; {
		var dst *uint64
		var key int // length of the key
		switch b[0] {
		case 'a':
			if key = keyLength(b, "anon"); key > 0 {
				dst, seen = &out.Anon, seen|anon
			}
		case 'f':
			if key = keyLength(b, "file"); key > 0 {
				dst, seen = &out.File, seen|file
			}
		case 's':
			if key = keyLength(b, "shmem"); key > 0 {
				dst, seen = &out.Shmem, seen|shmem
			}
		case 'i':
			if key = keyLength(b, "inactive_file"); key > 0 {
				dst, seen = &out.InactiveFile, seen|inactiveFile
			}
		}
		end := key
		for end < len(b) && b[end] != '\n' {
			end++
		}
		if dst != nil {
			if err := store(dst, b[:key], b[min(key+1, end):end]); err != nil {
				return err
			}
		}
		if b = b[min(end+1, len(b)):]; seen == all {
			return nil
		}
	}
	return missing(memoryStatKeys)
}

// keyLength returns the length of key if b starts with it as a whole word, else 0.
func keyLength(b []byte, key string) int {
	n := len(key)
	if len(b) < n || string(b[:n]) != key || len(b) > n && b[n] != ' ' && b[n] != '\n' {
		return 0
	}
	return n
}

// MemoryStat reads memory.stat into out; buf is scratch space of at least 8 KiB. The read is
// expensive: the kernel flushes its per-CPU counters first (mm/memcontrol.c,
// mem_cgroup_flush_stats).
func (g *Group) MemoryStat(buf []byte, out *MemoryStat) error {
	b, err := g.readKept(fileMemoryStat, buf)
	if err != nil {
		return err
	}
	if err := ParseMemoryStat(b, out); err != nil {
		return g.parseError("memory.stat", err)
	}
	return nil
}

// MemoryCurrent reads memory.current, in bytes, including descendants. The root cgroup has no
// memory.current.
func (g *Group) MemoryCurrent(buf []byte) (uint64, error) {
	return g.numberKept(fileMemoryCurrent, buf)
}

// MemorySwapCurrent reads memory.swap.current: the bytes of swap used by the group and its
// descendants. The file is missing in the root cgroup and on a kernel without CONFIG_SWAP.
func (g *Group) MemorySwapCurrent(buf []byte) (uint64, error) {
	return g.numberKept(fileMemorySwapCurrent, buf)
}

// MemoryMin reads memory.min: the bytes that are never reclaimed. The root cgroup has no limit
// files.
func (g *Group) MemoryMin(buf []byte) (Limit, error) { return g.readLimit("memory.min", buf) }

// MemoryLow reads memory.low: the bytes that are reclaimed only if no unprotected memory is left.
func (g *Group) MemoryLow(buf []byte) (Limit, error) { return g.readLimit("memory.low", buf) }

// MemoryMax reads memory.max, in bytes: the limit above which the group's processes are OOM-killed.
func (g *Group) MemoryMax(buf []byte) (Limit, error) {
	b, err := g.readKept(fileMemoryMax, buf)
	if err != nil {
		return Limit{}, err
	}
	return g.limitIn("memory.max", b)
}

// MemorySwapMax reads memory.swap.max, in bytes of swap.
func (g *Group) MemorySwapMax(buf []byte) (Limit, error) {
	return g.readLimit("memory.swap.max", buf)
}

// MemoryEvents holds the counters of memory.events (with descendants) or memory.events.local
// (the group alone) since the group was created (v6.12 mm/memcontrol.c, __memory_events_show).
type MemoryEvents struct {
	Low          uint64 // times reclaimed although below memory.low
	High         uint64 // times throttled at memory.high
	Max          uint64 // times about to exceed memory.max
	OOM          uint64 // times at memory.max after reclaim failed; a kill may follow
	OOMKill      uint64 // processes that any OOM killer killed
	OOMGroupKill uint64 // whole-group kills (memory.oom.group); since v5.17, 0 before
}

// field returns the field for a key and its bit in a set; nil if the key is unknown.
func (e *MemoryEvents) field(key []byte) (dst *uint64, bit int) {
	switch string(key) {
	case "low":
		return &e.Low, 1
	case "high":
		return &e.High, 2
	case "max":
		return &e.Max, 4
	case "oom":
		return &e.OOM, 8
	case "oom_kill":
		return &e.OOMKill, 16
	case "oom_group_kill":
		return &e.OOMGroupKill, 0
	}
	return nil, 0
}

// ParseMemoryEvents parses memory.events. All keys except oom_group_kill are required.
func ParseMemoryEvents(b []byte) (MemoryEvents, error) {
	var e MemoryEvents
	seen := 0
	for len(b) > 0 {
		var key, value []byte
		key, value, b = nextPair(b)
		dst, bit := e.field(key)
		if dst == nil {
			continue
		}
		if err := store(dst, key, value); err != nil {
			return MemoryEvents{}, err
		}
		seen |= bit
	}
	if seen != 31 {
		return MemoryEvents{}, missing("low, high, max, oom, oom_kill")
	}
	return e, nil
}

// MemoryEvents reads memory.events, which includes descendants. The root cgroup has no
// memory.events.
func (g *Group) MemoryEvents(buf []byte) (MemoryEvents, error) {
	return g.eventsOf(fileMemoryEvents, buf)
}

// MemoryEventsLocal reads memory.events.local, which excludes descendants.
func (g *Group) MemoryEventsLocal(buf []byte) (MemoryEvents, error) {
	return g.eventsOf(fileMemoryEventsLocal, buf)
}

func (g *Group) eventsOf(which int, buf []byte) (MemoryEvents, error) {
	b, err := g.readKept(which, buf)
	if err != nil {
		return MemoryEvents{}, err
	}
	e, err := ParseMemoryEvents(b)
	if err != nil {
		return e, g.parseError(keptFiles[which], err)
	}
	return e, nil
}
