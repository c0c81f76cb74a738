package eviction

import (
	"time"

	"jettison/stats"
)

// What a victim leaves in shared memory: in /dev/shm and in volumes in memory. It is not freed with the victim's processes but when it is
// unmounted, by the agent, the runtime, or the owner of the volume: beside a kubelet that is the kubelet. Until then it is charged to the
// cgroup above the pod's once that is removed (mm/memcontrol.c memcg_reparent_objcgs, v6.12; before, to the dying cgroup), so that only the
// shared memory of the whole node tells when it is gone.

// sharedMemory of a victim, in bytes.
type sharedMemory struct {
	bytes uint64 // that it had; 0: not worth waiting for
	left  uint64 // of that is still to come
	fell  uint64 // by how much the node's has fallen since it is awaited
}

// sharedPool is what all victims that are awaited have in shared memory, in bytes: whose is gone the node's figure does not tell.
type sharedPool struct {
	need uint64            // by how much the node's has to fall
	then stats.Opt[uint64] // the most of it since
	fell uint64            // the most that it fell by, from what it was at any time since
}

// left is what is still to come. A little of it is none, for others come and go.
func (p *sharedPool) left() uint64 {
	if stats.SaturatingAdd(p.fell, leastShared) >= p.need {
		return 0
	}
	return p.need - p.fell
}

// share notes what a victim has in shared memory as its eviction begins. In a replay the node's is not known.
func (m *Manager) share(l *Life) {
	had := l.e.Pod.Memory.ShmemBytes
	if !had.OK || had.V <= leastShared || had.V > implausible || m.config.Replay {
		return
	}
	l.shmem = sharedMemory{bytes: had.V, left: had.V}
	now := m.cheap.Node.Memory.ShmemBytes
	now.OK = now.OK && now.V <= implausible
	m.pool = sharedPool{need: stats.SaturatingAdd(m.pool.left(), had.V), then: now}
}

// followShared follows the node's shared memory. Others fill tmpfs meanwhile, so that what is gone shows in how far it fell at once and not
// in how much less there is than at the kill; what comes and goes adds up to nothing. What falls is of dead victims first, and nothing of
// those that are being stopped gently. Once that is all of what the dead ones had, what the others have is held against what there is now.
func (m *Manager) followShared() {
	p, now := &m.pool, m.cheap.Node.Memory.ShmemBytes
	if p.need == 0 || !now.OK || now.V > implausible {
		return
	}
	var alive, gentle uint64
	for _, l := range m.lives {
		if l.departed() {
			continue
		}
		if alive = stats.SaturatingAdd(alive, l.shmem.left); l.killed.Time.IsZero() {
			gentle = stats.SaturatingAdd(gentle, l.shmem.left)
		}
	}
	if !p.then.OK {
		p.then = now
	}
	p.then.V = min(max(p.then.V, now.V), stats.SaturatingAdd(now.V, p.need-min(p.need, gentle)))
	fell := max(p.fell, p.then.V-now.V)
	for _, l := range m.lives {
		if l.shmem.left > 0 {
			l.shmem.fell = stats.SaturatingAdd(l.shmem.fell, fell-p.fell)
		}
	}
	p.fell = fell
	dead := p.need - min(p.need, alive)
	done := alive > 0 && dead > 0 && stats.SaturatingAdd(fell, leastShared) >= dead
	if done {
		p.need, p.fell, p.then.V = p.need-dead, fell-min(fell, dead), max(now.V, p.then.V-min(p.then.V, dead))
	}
	m.tellShared(done)
}

// tellShared tells each victim what of its own may be still to come. deadDone: nothing is of those that are dead.
func (m *Manager) tellShared(deadDone bool) {
	left, any := m.pool.left(), false
	for _, l := range m.lives {
		if l.shmem.left = min(l.shmem.left, left); deadDone && l.departed() {
			l.shmem.left = 0
		}
		any = any || l.shmem.left > 0
	}
	if !any {
		m.pool = sharedPool{}
	}
}

// letGo ends the wait for a victim.
func (m *Manager) letGo(l *Life) {
	if !l.settled {
		l.settled = true
		m.unshare(l)
	}
}

// unshare: what a victim has in shared memory still is no part any more of what the node's has to fall by. That may be all that is out, but
// not what others have for sure: they have given back no more than what fell since they are awaited.
func (m *Manager) unshare(l *Life) {
	p, least := &m.pool, uint64(0)
	out := p.need - min(p.need, p.fell) - min(p.need-min(p.need, p.fell), l.shmem.left)
	l.shmem.left = 0
	for _, o := range m.lives {
		if s := &o.shmem; s.left > 0 {
			least = stats.SaturatingAdd(least, s.bytes-min(s.bytes, s.fell))
		}
	}
	p.need = stats.SaturatingAdd(p.fell, max(out, least))
	m.tellShared(false)
}

// remade ends the wait for what lies in volumes of pods that have come back: a kubelet that restarts a pod keeps them.
func (m *Manager) remade(now time.Time, pods []stats.PodStats) {
	for _, l := range m.lives {
		if l.settled || !l.sharedAwaited(now) {
			continue
		}
		for i := range pods {
			if p := &pods[i]; p.PodRef.UID == l.e.Pod.PodRef.UID && cameBack(&l.e.Pod, p) {
				m.unshare(l)
			}
		}
	}
}

// sharedAwaited reports whether the shared memory of a dead victim is still awaited. That the runtime has cleaned up does not end it.
func (l *Life) sharedAwaited(now time.Time) bool {
	return l.Dead() && !l.back && now.Sub(l.emptied.Time) < sharedLimit && l.shmem.left > 0
}

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

// resumeShared takes back what is awaited of shared memory, once the lives are there: of one that was dropped nothing is.
func (m *Manager) resumeShared(saved *SavedPool, drop func(string, ...any)) {
	switch {
	case saved == nil:
	case saved.Need > implausible || saved.Fell > implausible || saved.Then != nil && *saved.Then > implausible:
		drop("what is awaited of shared memory: a number that cannot be true")
	default:
		all := saved.Fell
		for _, l := range m.lives {
			all = stats.SaturatingAdd(all, l.shmem.left)
		}
		m.pool = sharedPool{need: min(saved.Need, all), fell: saved.Fell}
		if saved.Then != nil {
			m.pool.then = stats.Some(*saved.Then)
		}
	}
	m.tellShared(false)
}
