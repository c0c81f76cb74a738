package eviction

import "jettison/stats"

// SavedShmem is what is kept of a victim's shared memory, in bytes.
type SavedShmem struct {
	Bytes uint64 `json:"bytes"`
	Left  uint64 `json:"left,omitempty"` // of that is still to come
	Fell  uint64 `json:"fell,omitempty"` // the node's has fallen by so much since
}

// SavedPool is the same of all victims that are awaited.
type SavedPool struct {
	Need uint64  `json:"need"`           // by how much the node's has to fall
	Then *uint64 `json:"then,omitempty"` // the most of it since; nil: it was not read
	Fell uint64  `json:"fell,omitempty"` // the most that it fell by since
}

func (s *sharedMemory) save() *SavedShmem {
	if s.bytes == 0 {
		return nil
	}
	return &SavedShmem{Bytes: s.bytes, Left: s.left, Fell: s.fell}
}

func (s *sharedMemory) resume(saved *SavedShmem, drop func(string, ...any)) {
	switch {
	case saved == nil:
	case saved.Bytes > implausible || saved.Left > saved.Bytes || saved.Fell > implausible:
		drop("what is awaited of a victim's shared memory: a number that cannot be true")
	default:
		*s = sharedMemory{bytes: saved.Bytes, left: saved.Left, fell: saved.Fell}
	}
}

func (p *sharedPool) save() *SavedPool {
	if p.need == 0 {
		return nil
	}
	out := &SavedPool{Need: p.need, Fell: p.fell}
	if p.then.OK {
		then := p.then.V
		out.Then = &then
	}
	return out
}

// resumeShared takes back what is awaited of shared memory, once the lives are there: of one that
// was dropped nothing is.
func (es *evictions) resumeShared(saved *SavedPool, drop func(string, ...any)) {
	switch {
	case saved == nil:
	case saved.Need > implausible || saved.Fell > implausible || saved.Then != nil &&
		*saved.Then > implausible:
		drop("what is awaited of shared memory: a number that cannot be true")
	default:
		all := saved.Fell
		for _, l := range es.lives {
			all = stats.SaturatingAdd(all, l.shmem.left)
		}
		es.pool = sharedPool{need: min(saved.Need, all), fell: saved.Fell}
		if saved.Then != nil {
			es.pool.then = stats.Some(*saved.Then)
		}
	}
	es.tellShared(false)
}
