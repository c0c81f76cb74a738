package eviction

import (
	"slices"
	"time"

	"jettison/stats"
)

// What a victim leaves in shared memory: in /dev/shm and in volumes in memory. It is not freed with the victim's processes but when it is
// unmounted, by the agent, the runtime, or the owner of the volume: beside a kubelet that is the kubelet. Until then it is charged to the
// cgroup above the pod's once that is removed (mm/memcontrol.c memcg_reparent_objcgs, v6.12; before, to the dying cgroup), so that only the
// shared memory of the whole node tells when it is gone.

// sharedMemory of a victim, in bytes.
type sharedMemory struct {
	bytes uint64            // that it had; 0: not worth waiting for
	need  uint64            // by how much the node's has to fall: of others that are awaited, too
	then  stats.Opt[uint64] // the most of the node's since then
	fell  uint64            // the most that it fell by, from what it was at any time since
	kept  bool              // the pod has come back, and its volumes with it; a look tells, so that it is not saved
}

// share notes what a victim has in shared memory as its eviction begins. Those that are awaited already are held against the same figure
// from then on, so that what one gives back is not taken for another's. In a replay the node's is not known.
func (m *Manager) share(l *Life) {
	l.shmem = sharedMemory{}
	had := l.e.Pod.Memory.ShmemBytes
	if !had.OK || had.V <= leastShared || had.V > implausible || m.config.Replay {
		return
	}
	l.shmem.bytes = had.V
	total, now := had.V, m.cheap.Node.Memory.ShmemBytes
	now.OK = now.OK && now.V <= implausible
	for _, o := range m.lives {
		if o != l && !o.settled {
			o.shmem.bytes = o.sharedLeft()
			total = add(total, o.shmem.bytes)
		}
	}
	for _, o := range append(slices.Clone(m.lives), l) { // Hasten's is among them already
		if s := &o.shmem; s.bytes > 0 {
			s.need, s.then, s.fell = total, now, 0
		}
	}
}

// shared follows the node's shared memory. That of a pod which is being stopped gently may grow still. Others fill tmpfs meanwhile, so that
// what is gone shows in how far it fell at once and not in how much less there is than at the kill; what comes and goes adds up to nothing.
func (m *Manager) shared(l *Life) {
	s, now := &l.shmem, m.cheap.Node.Memory.ShmemBytes
	switch {
	case s.bytes == 0 || !now.OK || now.V > implausible:
	case !s.then.OK, l.killed.Time.IsZero() && !l.departed() && now.V > s.then.V:
		s.then, s.fell = now, 0
	default:
		s.then.V = max(s.then.V, now.V)
		s.fell = max(s.fell, s.then.V-now.V)
	}
}

// letGo ends the wait for a victim.
func (m *Manager) letGo(l *Life) {
	if l.settled {
		return
	}
	l.settled = true
	m.unshare(l)
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
				l.shmem.kept = true
			}
		}
	}
}

// unshare: what a victim has in shared memory still is no part any more of what the node's has to fall by for others.
func (m *Manager) unshare(l *Life) {
	left := l.sharedLeft()
	for _, o := range m.lives {
		if s := &o.shmem; o != l && !o.settled && s.bytes > 0 {
			s.need -= min(left, s.need-s.bytes)
		}
	}
}

// sharedLeft is what of a victim's shared memory is still to come. A little of it is none, for others come and go.
func (l *Life) sharedLeft() uint64 {
	s := &l.shmem
	if s.bytes == 0 || s.kept || add(s.fell, leastShared) >= s.need {
		return 0
	}
	own := s.fell - min(s.fell, s.need-s.bytes)
	return s.bytes - min(s.bytes, own)
}

// sharedAwaited reports whether the shared memory of a dead victim is still awaited. That the runtime has cleaned up does not end it.
func (l *Life) sharedAwaited(now time.Time) bool {
	return l.Dead() && !l.back && now.Sub(l.emptied.Time) < sharedLimit && l.sharedLeft() > 0
}

// SavedShmem is what is kept of a victim's shared memory, in bytes.
type SavedShmem struct {
	Bytes uint64  `json:"bytes"`
	Need  uint64  `json:"need"`           // by how much the node's has to fall
	Then  *uint64 `json:"then,omitempty"` // the most of the node's since the eviction began; nil: it was not read
	Fell  uint64  `json:"fell,omitempty"` // the most that it fell by since
}

func (s *sharedMemory) save() *SavedShmem {
	if s.bytes == 0 {
		return nil
	}
	out := &SavedShmem{Bytes: s.bytes, Need: s.need, Fell: s.fell}
	if s.then.OK {
		out.Then = &s.then.V
	}
	return out
}

func (s *sharedMemory) resume(saved *SavedShmem, drop func(string, ...any)) {
	switch {
	case saved == nil:
	case saved.Bytes > saved.Need || saved.Need > implausible || saved.Fell > implausible || saved.Then != nil && *saved.Then > implausible:
		drop("what is awaited of shared memory: a number that cannot be true")
	default:
		*s = sharedMemory{bytes: saved.Bytes, need: saved.Need, fell: saved.Fell}
		if saved.Then != nil {
			s.then = stats.Some(*saved.Then)
		}
	}
}
