package cgroup

// MemoryStat holds the lines of memory.stat that the agent uses, in bytes (mm/memcontrol.c,
// memory_stats, v6.12). On the root cgroup they cover the whole machine.
type MemoryStat struct {
	Anon uint64 // anonymous memory: freed by killing
	File uint64 // page cache, tmpfs and shared memory included
	// the part of File that is tmpfs or shared memory: swap-backed, not dropped with its writer
	Shmem        uint64
	InactiveFile uint64 // page cache not used of late
}

const memoryStatKeys = "anon, file, shmem, inactive_file"

// ParseMemoryStat reads memory.stat as far as the last of its four keys, in whatever order they
// come: about the first 22 of 60 lines of v6.12. What follows is not looked at. It fails if one of
// them is missing: every cgroup v2 kernel has them, and a working set made of absent numbers would
// be a lie. It does not allocate.
//
// It is read for every pod at every look, so it tells lines apart by their first byte and goes
// through most of them by a plain loop: they are too short for a search by vectors to pay.
func ParseMemoryStat(b []byte, out *MemoryStat) error {
	*out = MemoryStat{}
	const anon, file, shmem, inactiveFile, all = 1, 2, 4, 8, 15
	for seen := 0; len(b) > 0; {
		var dst *uint64
		var key int // its length
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

// keyLength is the length of key if b starts with it as a whole word, else 0.
func keyLength(b []byte, key string) int {
	n := len(key)
	if len(b) < n || string(b[:n]) != key || len(b) > n && b[n] != ' ' && b[n] != '\n' {
		return 0
	}
	return n
}

// MemoryStat reads memory.stat into out; buf is scratch space of at least 8 KiB. This file is dear:
// the kernel flushes its per-CPU counters first (mm/memcontrol.c, mem_cgroup_flush_stats).
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

// MemoryCurrent reads memory.current, in bytes, the groups below included. The root cgroup has
// none.
func (g *Group) MemoryCurrent(buf []byte) (uint64, error) {
	return g.numberKept(fileMemoryCurrent, buf)
}

// MemorySwapCurrent reads memory.swap.current, in bytes of swap that the group and those below it
// occupy. The root cgroup has none, nor has a kernel without CONFIG_SWAP.
func (g *Group) MemorySwapCurrent(buf []byte) (uint64, error) {
	return g.numberKept(fileMemorySwapCurrent, buf)
}

// MemoryMin reads memory.min, in bytes: what is never reclaimed. The root cgroup has none of the
// limits.
func (g *Group) MemoryMin(buf []byte) (Limit, error) { return g.readLimit("memory.min", buf) }

// MemoryLow reads memory.low, in bytes: what is reclaimed only if nothing else is left.
func (g *Group) MemoryLow(buf []byte) (Limit, error) { return g.readLimit("memory.low", buf) }

// MemoryMax reads memory.max, in bytes: beyond it the group's processes are OOM-killed.
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

// MemoryEvents is memory.events (with the groups below) or memory.events.local (the group alone):
// how often each happened since the group was made (v6.12 mm/memcontrol.c, __memory_events_show).
type MemoryEvents struct {
	Low          uint64 // reclaimed although below memory.low
	High         uint64 // throttled for memory.high
	Max          uint64 // about to go beyond memory.max
	OOM          uint64 // at memory.max with reclaim failing; a kill may follow
	OOMKill      uint64 // processes that any OOM killer killed
	OOMGroupKill uint64 // whole-group kills (memory.oom.group); since v5.17, 0 before
}

// field is where the value of a key belongs; nil if it is not known.
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

// ParseMemoryEvents reads memory.events. All keys but oom_group_kill must be there.
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

// MemoryEvents reads memory.events: of the group and all below it. The root cgroup has none.
func (g *Group) MemoryEvents(buf []byte) (MemoryEvents, error) {
	return g.eventsOf(fileMemoryEvents, buf)
}

// MemoryEventsLocal reads memory.events.local: of the group without those below it.
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
