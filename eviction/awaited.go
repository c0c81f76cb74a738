package eviction

import (
	"time"

	"jettison/stats"
)

// This file tracks the expected and the actual returns of a victim's death, for every resource and
// not only for the one that the victim was chosen for.

// amounts is the number of kinds that a victim returns. The constants of these kinds come first.
const amounts = kindInodes + 1

// signalCount is the number of signals, and the upper bound of signalInfo.order.
const signalCount = 14

// awaited holds the expected returns of one eviction.
type awaited struct {
	baselines [signalCount]baseline // by signalInfo.order; only for signals that are amounts
	// expected return, as known before the kill; absent: unknown
	expected [amounts]stats.Opt[uint64]
	// the part that the victim still held when measured after the kill; absent: not measured
	heldSince [amounts]stats.Opt[uint64]
	// page cache in bytes, which returns a moment after the death
	pageCache uint64
	shmem     sharedMemory // returned later
	podTotals              // for the victim's signal
}

// baseline holds a signal's value when an eviction began, and its highest value since the kill. At
// least the difference was returned.
type baseline struct {
	level, best uint64
	ok          bool    // the signal was observed
	disk        diskDue // for a disk's signal
}

// amountOf returns how much of a resource a pod's death returns. It is absent for disks, where the
// amount depends on the file system.
func amountOf(p *stats.PodStats, k kind) (o stats.Opt[uint64]) {
	switch k {
	case kindMemory:
		o = memoryReturned(&p.Memory)
	case kindSwap:
		o = p.Memory.SwapBytes
	case kindPID:
		if o = p.Threads; !o.OK {
			o = p.Processes
		}
	}
	if !o.OK || o.V > implausible {
		return stats.Opt[uint64]{}
	}
	return o
}

// memoryReturned returns the memory that a pod's death returns, without shared memory, which is
// returned later: the released memory, and the page cache that counts as used, which is dropped
// right after the death (internal/node/kill DropCache).
func memoryReturned(mem *stats.PodMemoryStats) stats.Opt[uint64] {
	o := memoryReleased(mem)
	if o.OK {
		o.V = stats.SaturatingAdd(o.V, cacheOf(mem))
	}
	return o
}

// cacheOf returns the part of a pod's page cache that counts as used memory.
func cacheOf(mem *stats.PodMemoryStats) uint64 {
	released := memoryReleased(mem)
	if !released.OK || mem.Quick {
		return 0
	}
	other := stats.SaturatingAdd(stats.SaturatingAdd(released.V, mem.ShmemBytes.V), mem.KernelBytes.V)
	return min(mem.WorkingSetBytes.V-min(other, mem.WorkingSetBytes.V), implausible)
}

// expectReturns stores every signal's value at the start of an eviction, and the expected return of
// each.
func (es *evictions) expectReturns(l *Life, ws *watchlist, shmem stats.Opt[uint64]) {
	es.releaseShmem(l) // l may be hastened
	l.awaited = awaited{}
	for i := range ws.all {
		if w := &ws.all[i]; w.observed.OK && w.Amount() {
			l.baselines[w.info.order] = baseline{level: w.observed.Value, best: w.observed.Value, ok: true}
		}
	}
	l.noteDiskUse(&l.e.Pod, ws)
	l.pageCache = cacheOf(&l.e.Pod.Memory)
	for k := range l.expected {
		l.expected[k] = amountOf(&l.e.Pod, kind(k))
	}
	if w := ws.watchedBy(&l.e, &l.met.Threshold); w != nil {
		l.podTotals = w.podTotals.withoutPod(&l.e.Pod, w.info.kind)
	}
	l.expectReturned()
	es.expectShmem(l, l.e.Pod.Memory.ShmemBytes, shmem)
}

// expectAmounts updates the expected returns of a victim for a disk that is killed for another
// shortage. The values of the disk stay.
func (l *Life) expectAmounts(p *stats.PodStats, all []watched) {
	for i := range all {
		w := &all[i]
		if k := &l.baselines[w.info.order]; w.observed.OK && w.Amount() && !w.info.kind.disk() {
			k.level, k.best, k.ok = w.observed.Value, w.observed.Value, true
		}
	}
	for k := range l.expected {
		if amount := amountOf(p, kind(k)); amount.OK && !kind(k).disk() && !p.Memory.Quick {
			l.expected[k] = amount
		}
	}
	if !p.Memory.Quick {
		l.pageCache = cacheOf(&p.Memory)
	}
	l.heldSince = [amounts]stats.Opt[uint64]{}
}

// expectReturned sets the expected return of the resource that the victim was chosen for to
// Eviction.Returns.
func (l *Life) expectReturned() {
	if k := l.e.kind; k < amounts && !l.e.Local() {
		l.expected[k] = stats.Opt[uint64]{V: l.e.Returns, OK: l.e.Returns > 0}
	}
}

// noteReturned raises the highest value of each signal since the kill. A pod in its grace period
// has returned nothing yet.
func (l *Life) noteReturned(all []watched) {
	if l.killed.Time.IsZero() && !l.terminated() {
		return
	}
	for i := range all {
		w := &all[i]
		if k := &l.baselines[w.info.order]; w.observed.OK && k.ok && w.Amount() {
			k.best = max(k.best, w.observed.Value)
		}
	}
}

// levelOf returns the value of a signal when the eviction began; absent if it was not observed.
func (l *Life) levelOf(w *watched) stats.Opt[uint64] {
	if w.Signal == l.e.Signal {
		return stats.Some(l.level)
	}
	k := &l.baselines[w.info.order]
	return stats.Opt[uint64]{V: k.level, OK: k.ok}
}

// remaining returns the amount of a signal that is still expected from an eviction; absent if
// unknown. It is the victim's usage when last measured after the kill. Before such a measurement it
// is the expected return minus the signal's gain, which other pods may have caused. The victim's
// pending shared memory is added.
func (l *Life) remaining(w *watched) (o stats.Opt[uint64]) {
	k := w.info.kind
	switch {
	case k >= amounts:
		return o
	case k.disk():
		if o = l.expectedOf(w); o.OK {
			o.V -= min(o.V, l.returnedOf(w))
		}
		return o
	}
	if k == kindMemory && l.Dead() && (l.e.Disk() || l.e.kind != kindMemory) { // the rest has returned
		return stats.Opt[uint64]{V: stats.SaturatingAdd(l.pageCache, l.shmem.pending), OK: true}
	}
	if o = l.expected[k]; l.heldSince[k].OK {
		o = l.heldSince[k]
	} else if at := l.levelOf(w); o.OK && at.OK {
		returned := max(l.baselines[w.info.order].best, at.V) - at.V
		if k == kindMemory {
			returned -= min(returned, l.shmem.nodeFell)
		}
		o.V -= min(o.V, returned)
	}
	if k == kindMemory && o.OK {
		o.V = stats.SaturatingAdd(o.V, l.shmem.pending)
	}
	return o
}

// applyMeasurement updates the expected returns with a look at a victim that was killed or is being
// stopped.
func (es *evictions) applyMeasurement(l *Life, p *stats.PodStats) {
	l.pageCache = cacheOf(&p.Memory)
	for i := range amounts {
		amount := amountOf(p, i)
		switch {
		case l.e.Disk() && i == kindMemory && l.killed.Time.IsZero() && amount.OK:
			l.expected[i] = amount // memory freed since the start is available already
		case !amount.OK:
		case !l.killed.Time.IsZero():
			l.heldSince[i] = amount
		case i != l.e.kind:
			l.expected[i] = stats.Some(max(amount.V, l.expected[i].V))
		}
	}
	if s, amount := &l.shmem, p.Memory.ShmemBytes; l.killed.Time.IsZero() && s.pending > 0 &&
		amount.OK && amount.V <= implausible && amount.V > s.bytes {
		es.pool.need, s.pending, s.bytes = stats.SaturatingAdd(es.pool.need, amount.V-s.bytes),
			stats.SaturatingAdd(s.pending, amount.V-s.bytes), amount.V
	}
}

// sinceKill returns the time since the kill, or since the start of an eviction for a hard
// threshold; 0 for a victim in its grace period.
func (l *Life) sinceKill(now time.Time) time.Duration {
	switch {
	case !l.killed.Time.IsZero():
		return now.Sub(l.killed.Time)
	case l.e.hard:
		return now.Sub(l.began.Time)
	}
	return 0
}
