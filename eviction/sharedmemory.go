package eviction

import (
	"time"

	"jettison/stats"
)

// This file tracks the shared memory that a victim leaves in /dev/shm and in volumes in memory. The
// death of its processes does not free that memory. The unmount by the agent, the runtime, or the
// owner of the volume does; on a node with a kubelet, the owner is the kubelet. Once the pod's
// cgroup is removed, this memory is charged to the cgroup above it (mm/memcontrol.c
// memcg_reparent_objcgs, v6.12; in older kernels to the dying cgroup). Only the shared memory of
// the whole node therefore shows when it is freed.

// sharedMemory of a victim, in bytes.
type sharedMemory struct {
	bytes    uint64 // at the start; 0: not worth waiting for
	pending  uint64 // still expected
	nodeFell uint64 // fall of the node's shared memory since the eviction began
}

// sharedPool is the expected shared memory of all victims, in bytes. It is tracked as a total,
// because the node's value does not show which victim's memory was freed.
type sharedPool struct {
	need    uint64            // how far the node's shared memory must fall
	highest stats.Opt[uint64] // the node's highest value since the pool began
	fell    uint64            // the largest fall from any value since then
}

// pending returns the amount that is still expected. A small rest counts as 0, because other pods
// come and go.
func (p *sharedPool) pending() uint64 {
	if stats.SaturatingAdd(p.fell, leastShared) >= p.need {
		return 0
	}
	return p.need - p.fell
}

// expectShmem stores a victim's shared memory when its eviction begins. now is the node's current
// shared memory, which is unknown in a replay.
func (es *evictions) expectShmem(l *Life, had, now stats.Opt[uint64]) {
	if !had.OK || had.V <= leastShared || had.V > implausible || es.config.Replay {
		return
	}
	l.shmem = sharedMemory{bytes: had.V, pending: had.V}
	now.OK = now.OK && now.V <= implausible
	es.pool = sharedPool{need: stats.SaturatingAdd(es.pool.pending(), had.V), highest: now}
}

// followShmem updates the expected shared memory with the node's current value.
//
// Other pods may fill tmpfs meanwhile. The freed amount therefore shows in the largest fall from
// any earlier value, not in the difference from the value at the kill. Repeated small changes do
// not add up. A fall counts for dead victims first, and never for victims in a grace period. Once
// all memory of the dead victims is freed, later falls are measured from the current value.
func (es *evictions) followShmem(now stats.Opt[uint64]) {
	p := &es.pool
	if p.need == 0 || !now.OK || now.V > implausible {
		return
	}
	var alive, inGrace uint64
	for _, l := range es.lives {
		if l.terminated() {
			continue
		}
		if alive = stats.SaturatingAdd(alive, l.shmem.pending); l.killed.Time.IsZero() {
			inGrace = stats.SaturatingAdd(inGrace, l.shmem.pending)
		}
	}
	if !p.highest.OK {
		p.highest = now
	}
	p.highest.V = min(max(p.highest.V, now.V), stats.SaturatingAdd(now.V, p.need-min(p.need, inGrace)))
	fell := max(p.fell, p.highest.V-now.V)
	for _, l := range es.lives {
		if l.shmem.pending > 0 {
			l.shmem.nodeFell = stats.SaturatingAdd(l.shmem.nodeFell, fell-p.fell)
		}
	}
	p.fell = fell
	dead := p.need - min(p.need, alive)
	done := alive > 0 && dead > 0 && stats.SaturatingAdd(fell, leastShared) >= dead
	if done {
		p.need, p.fell, p.highest.V = p.need-dead, fell-min(fell, dead),
			max(now.V, p.highest.V-min(p.highest.V, dead))
	}
	es.distributeShmem(done)
}

// distributeShmem bounds the expected amount of each victim by the total. deadDone reports that
// nothing more is expected of dead victims.
func (es *evictions) distributeShmem(deadDone bool) {
	left, any := es.pool.pending(), false
	for _, l := range es.lives {
		if l.shmem.pending = min(l.shmem.pending, left); deadDone && l.terminated() {
			l.shmem.pending = 0
		}
		any = any || l.shmem.pending > 0
	}
	if !any {
		es.pool = sharedPool{}
	}
}

// releaseShmem ends the wait for a victim's shared memory: the node's value no longer has to fall
// by that amount. It removes at most the amount still expected in total. It keeps the amount that
// other victims certainly still hold: their memory at the start minus the fall since.
func (es *evictions) releaseShmem(l *Life) {
	p, certain := &es.pool, uint64(0)
	rest := p.need - min(p.need, p.fell) - min(p.need-min(p.need, p.fell), l.shmem.pending)
	l.shmem.pending = 0
	for _, o := range es.lives {
		if s := &o.shmem; s.pending > 0 {
			certain = stats.SaturatingAdd(certain, s.bytes-min(s.bytes, s.nodeFell))
		}
	}
	p.need = stats.SaturatingAdd(p.fell, max(rest, certain))
	es.distributeShmem(false)
}

// settleRecreatedShmem ends the wait for the shared memory of pods that were recreated, because a
// kubelet that restarts a pod keeps its volumes.
func (es *evictions) settleRecreatedShmem(now time.Time, pods []stats.PodStats) {
	for _, l := range es.lives {
		if l.settled || !l.shmemPending(now) {
			continue
		}
		for i := range pods {
			if p := &pods[i]; p.PodRef.UID == l.e.Pod.PodRef.UID && sameUIDRecreated(&l.e.Pod, p) {
				es.releaseShmem(l)
			}
		}
	}
}

// shmemPending reports whether the shared memory of a dead victim is still expected. The end of the
// runtime's clean-up does not change that.
func (l *Life) shmemPending(now time.Time) bool {
	return l.Dead() && !l.recreated && now.Sub(l.emptied.Time) < sharedLimit && l.shmem.pending > 0
}
