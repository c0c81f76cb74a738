package eviction

import (
	"time"

	"jettison/stats"
)

// What a victim leaves in shared memory: in /dev/shm and in volumes in memory. It is not freed with
// the victim's processes but when it is unmounted, by the agent, the runtime, or the owner of the
// volume: beside a kubelet that is the kubelet. Until then it is charged to the cgroup above the
// pod's once that is removed (mm/memcontrol.c memcg_reparent_objcgs, v6.12; before, to the dying
// cgroup), so that only the shared memory of the whole node tells when it is gone.

// sharedMemory of a victim, in bytes.
type sharedMemory struct {
	bytes uint64 // that it had; 0: not worth waiting for
	left  uint64 // of that is still to come
	fell  uint64 // by how much the node's has fallen since it is awaited
}

// sharedPool is what all victims that are awaited have in shared memory, in bytes: whose is gone
// the node's figure does not tell.
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

// share notes what a victim has in shared memory as its eviction begins. now is what the node has,
// which is not known in a replay.
func (es *evictions) share(l *Life, now stats.Opt[uint64]) {
	had := l.e.Pod.Memory.ShmemBytes
	if !had.OK || had.V <= leastShared || had.V > implausible || es.config.Replay {
		return
	}
	l.shmem = sharedMemory{bytes: had.V, left: had.V}
	now.OK = now.OK && now.V <= implausible
	es.pool = sharedPool{need: stats.SaturatingAdd(es.pool.left(), had.V), then: now}
}

// followShared follows the node's shared memory, of which there is so much now. Others fill tmpfs
// meanwhile, so that what is gone shows in how far it fell at once and not in how much less there
// is than at the kill; what comes and goes adds up to nothing. What falls is of dead victims first,
// and nothing of those that are being stopped gently. Once that is all of what the dead ones had,
// what the others have is held against what there is now.
func (es *evictions) followShared(now stats.Opt[uint64]) {
	p := &es.pool
	if p.need == 0 || !now.OK || now.V > implausible {
		return
	}
	var alive, gentle uint64
	for _, l := range es.lives {
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
	for _, l := range es.lives {
		if l.shmem.left > 0 {
			l.shmem.fell = stats.SaturatingAdd(l.shmem.fell, fell-p.fell)
		}
	}
	p.fell = fell
	dead := p.need - min(p.need, alive)
	done := alive > 0 && dead > 0 && stats.SaturatingAdd(fell, leastShared) >= dead
	if done {
		p.need, p.fell, p.then.V = p.need-dead, fell-min(fell, dead),
			max(now.V, p.then.V-min(p.then.V, dead))
	}
	es.tellShared(done)
}

// tellShared tells each victim what of its own may be still to come. deadDone: nothing is of those
// that are dead.
func (es *evictions) tellShared(deadDone bool) {
	left, any := es.pool.left(), false
	for _, l := range es.lives {
		if l.shmem.left = min(l.shmem.left, left); deadDone && l.departed() {
			l.shmem.left = 0
		}
		any = any || l.shmem.left > 0
	}
	if !any {
		es.pool = sharedPool{}
	}
}

// unshare: what a victim has in shared memory still is no part any more of what the node's has to
// fall by. That may be all that is out, but not what others have for sure: they have given back no
// more than what fell since they are awaited.
func (es *evictions) unshare(l *Life) {
	p, least := &es.pool, uint64(0)
	out := p.need - min(p.need, p.fell) - min(p.need-min(p.need, p.fell), l.shmem.left)
	l.shmem.left = 0
	for _, o := range es.lives {
		if s := &o.shmem; s.left > 0 {
			least = stats.SaturatingAdd(least, s.bytes-min(s.bytes, s.fell))
		}
	}
	p.need = stats.SaturatingAdd(p.fell, max(out, least))
	es.tellShared(false)
}

// remade ends the wait for what lies in volumes of pods that have come back: a kubelet that
// restarts a pod keeps them.
func (es *evictions) remade(now time.Time, pods []stats.PodStats) {
	for _, l := range es.lives {
		if l.settled || !l.sharedAwaited(now) {
			continue
		}
		for i := range pods {
			if p := &pods[i]; p.PodRef.UID == l.e.Pod.PodRef.UID && cameBack(&l.e.Pod, p) {
				es.unshare(l)
			}
		}
	}
}

// sharedAwaited reports whether the shared memory of a dead victim is still awaited. That the
// runtime has cleaned up does not end it.
func (l *Life) sharedAwaited(now time.Time) bool {
	return l.Dead() && !l.back && now.Sub(l.emptied.Time) < sharedLimit && l.shmem.left > 0
}
