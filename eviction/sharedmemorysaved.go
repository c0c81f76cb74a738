package eviction

import "jettison/stats"

// SavedShmem is the saved state of a victim's shared memory, in bytes.
type SavedShmem struct {
	Bytes    uint64 `json:"bytes"`
	Pending  uint64 `json:"left,omitempty"` // still expected
	NodeFell uint64 `json:"fell,omitempty"` // fall of the node's shared memory since
}

// SavedPool is the saved state of all victims' shared memory.
type SavedPool struct {
	Need    uint64  `json:"need"`           // how far the node's shared memory must fall
	Highest *uint64 `json:"then,omitempty"` // its highest value since; nil: not read
	Fell    uint64  `json:"fell,omitempty"` // its largest fall since
}

func (s *sharedMemory) save() *SavedShmem {
	if s.bytes == 0 {
		return nil
	}
	return &SavedShmem{Bytes: s.bytes, Pending: s.pending, NodeFell: s.nodeFell}
}

func (s *sharedMemory) resume(saved *SavedShmem, drop func(string, ...any)) {
	switch {
	case saved == nil:
	case saved.Bytes > implausible || saved.Pending > saved.Bytes || saved.NodeFell > implausible:
		drop("expected shared memory of a victim: implausible number")
	default:
		*s = sharedMemory{bytes: saved.Bytes, pending: saved.Pending, nodeFell: saved.NodeFell}
	}
}

func (p *sharedPool) save() *SavedPool {
	if p.need == 0 {
		return nil
	}
	out := &SavedPool{Need: p.need, Fell: p.fell}
	if p.highest.OK {
		highest := p.highest.V
		out.Highest = &highest
	}
	return out
}

// resumeShmem restores the expected shared memory. It runs after the evictions were restored,
// because dropped evictions return no shared memory.
func (es *evictions) resumeShmem(saved *SavedPool, drop func(string, ...any)) {
	switch {
	case saved == nil:
	case saved.Need > implausible || saved.Fell > implausible || saved.Highest != nil &&
		*saved.Highest > implausible:
		drop("expected shared memory: implausible number")
	default:
		all := saved.Fell
		for _, l := range es.lives {
			all = stats.SaturatingAdd(all, l.shmem.pending)
		}
		es.pool = sharedPool{need: min(saved.Need, all), fell: saved.Fell}
		if saved.Highest != nil {
			es.pool.highest = stats.Some(*saved.Highest)
		}
	}
	es.distributeShmem(false)
}
