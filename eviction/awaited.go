package eviction

import (
	"time"

	"jettison/stats"
)

// What the end of a victim is expected to return, of every amount and not only of what it was
// chosen for, and what of it came back.

// amounts are the kinds that are counted in what a victim returns. They come first.
const amounts = kindInodes + 1

// signalCount is how many signals there are: signalInfo.order is below it.
const signalCount = 14

// awaited is kept per eviction.
type awaited struct {
	marks [signalCount]mark // by signalInfo.order; of amounts only
	// what its end is expected to return, as known before the kill; absent: not known
	due [amounts]stats.Opt[uint64]
	// what of that it still had when it was measured after the kill; absent: it was not
	holds [amounts]stats.Opt[uint64]
	// bytes of page cache of that, which come a moment after its end
	cache    uint64
	shmem    sharedMemory // comes later
	together              // by its own signal
}

// mark is a signal as it stood when an eviction began, and the most that was left of it since the
// kill: what came back is at least the difference.
type mark struct {
	level, best uint64
	ok          bool // it was observed
	disk        owed // of a disk's signal
}

// amountOf is what a pod has of an amount that its end returns. Of disks that depends on the file
// system, so it is not known here.
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

// memoryReturned is what a pod's death returns of memory but for what is shared, which comes later:
// what is released, and page cache as far as it counts as used, for that is given back right after
// (internal/node/kill DropCache).
func memoryReturned(mem *stats.PodMemoryStats) stats.Opt[uint64] {
	o := memoryReleased(mem)
	if o.OK {
		o.V = stats.SaturatingAdd(o.V, cacheOf(mem))
	}
	return o
}

// cacheOf is the page cache of a pod as far as it counts as used.
func cacheOf(mem *stats.PodMemoryStats) uint64 {
	released := memoryReleased(mem)
	if !released.OK || mem.Quick {
		return 0
	}
	other := stats.SaturatingAdd(stats.SaturatingAdd(released.V, mem.ShmemBytes.V), mem.KernelBytes.V)
	return min(mem.WorkingSetBytes.V-min(other, mem.WorkingSetBytes.V), implausible)
}

// await notes how every signal stands as an eviction begins, and what its end is expected to return
// of each.
func (es *evictions) await(l *Life, ws *watchlist, shmem stats.Opt[uint64]) {
	es.unshare(l) // one that is hastened
	l.awaited = awaited{}
	for i := range ws.all {
		if w := &ws.all[i]; w.observed.OK && w.Amount() {
			l.marks[w.info.order] = mark{level: w.observed.Value, best: w.observed.Value, ok: true}
		}
	}
	l.owe(&l.e.Pod, ws)
	l.cache = cacheOf(&l.e.Pod.Memory)
	for k := range l.due {
		l.due[k] = amountOf(&l.e.Pod, kind(k))
	}
	if w := ws.watchedBy(&l.e, &l.met.Threshold); w != nil {
		l.together = w.together.without(&l.e.Pod, w.info.kind)
	}
	l.expect()
	es.share(l, shmem)
}

// awaitAmounts is await for a disk's victim that is killed for what else is short: of the disk what
// was noted stands.
func (l *Life) awaitAmounts(p *stats.PodStats, all []watched) {
	for i := range all {
		w := &all[i]
		if k := &l.marks[w.info.order]; w.observed.OK && w.Amount() && !w.info.kind.disk() {
			k.level, k.best, k.ok = w.observed.Value, w.observed.Value, true
		}
	}
	for k := range l.due {
		if has := amountOf(p, kind(k)); has.OK && !kind(k).disk() && !p.Memory.Quick {
			l.due[k] = has
		}
	}
	if !p.Memory.Quick {
		l.cache = cacheOf(&p.Memory)
	}
	l.holds = [amounts]stats.Opt[uint64]{}
}

// expect: of what it was chosen for the eviction itself says what it returns.
func (l *Life) expect() {
	if k := l.e.kind; k < amounts && !l.e.Local() {
		l.due[k] = stats.Opt[uint64]{V: l.e.Returns, OK: l.e.Returns > 0}
	}
}

// came notes how much more is left of each signal than ever since the kill. A pod that is being
// stopped gently has returned nothing yet.
func (l *Life) came(all []watched) {
	if l.killed.Time.IsZero() && !l.departed() {
		return
	}
	for i := range all {
		w := &all[i]
		if k := &l.marks[w.info.order]; w.observed.OK && k.ok && w.Amount() {
			k.best = max(k.best, w.observed.Value)
		}
	}
}

// levelOf is what was left of a signal when the eviction began; absent: it was not observed then.
func (l *Life) levelOf(w *watched) stats.Opt[uint64] {
	if w.Signal == l.e.Signal {
		return stats.Some(l.level)
	}
	k := &l.marks[w.info.order]
	return stats.Opt[uint64]{V: k.level, OK: k.ok}
}

// remaining is what is still expected of an eviction for a signal: what the victim had when it was
// measured last, or as long as it was not, what came back already taken off, though others may have
// given that; and what it has in shared memory. Absent: not known.
func (l *Life) remaining(w *watched) (o stats.Opt[uint64]) {
	k := w.info.kind
	switch {
	case k >= amounts:
		return o
	case k.disk():
		if o = l.dueOf(w); o.OK {
			o.V -= min(o.V, l.cameOf(w))
		}
		return o
	}
	if k == kindMemory && l.Dead() && (l.e.Disk() || l.e.kind != kindMemory) { // the rest is back
		return stats.Opt[uint64]{V: stats.SaturatingAdd(l.cache, l.shmem.left), OK: true}
	}
	if o = l.due[k]; l.holds[k].OK {
		o = l.holds[k]
	} else if at := l.levelOf(w); o.OK && at.OK {
		came := max(l.marks[w.info.order].best, at.V) - at.V
		if k == kindMemory {
			came -= min(came, l.shmem.fell)
		}
		o.V -= min(o.V, came)
	}
	if k == kindMemory && o.OK {
		o.V = stats.SaturatingAdd(o.V, l.shmem.left)
	}
	return o
}

// measured takes what a look says of a victim that was killed, or that is being stopped: one that
// leaks goes on leaking, and what it takes meanwhile it returns, too.
func (es *evictions) measured(l *Life, p *stats.PodStats) {
	l.cache = cacheOf(&p.Memory)
	for i := range amounts {
		has := amountOf(p, i)
		switch {
		case l.e.Disk() && i == kindMemory && l.killed.Time.IsZero() && has.OK:
			l.due[i] = has // what it gave back while it is being stopped is there already
		case !has.OK:
		case !l.killed.Time.IsZero():
			l.holds[i] = has
		case i != l.e.kind:
			l.due[i] = stats.Some(max(has.V, l.due[i].V))
		}
	}
	if s, has := &l.shmem, p.Memory.ShmemBytes; l.killed.Time.IsZero() && s.left > 0 && has.OK &&
		has.V <= implausible && has.V > s.bytes {
		es.pool.need, s.left, s.bytes = stats.SaturatingAdd(es.pool.need, has.V-s.bytes),
			stats.SaturatingAdd(s.left, has.V-s.bytes), has.V
	}
}

// since is how long ago an eviction was to kill its victim; 0: that is still to come.
func (l *Life) since(now time.Time) time.Duration {
	switch {
	case !l.killed.Time.IsZero():
		return now.Sub(l.killed.Time)
	case l.e.hard:
		return now.Sub(l.began.Time)
	}
	return 0
}
