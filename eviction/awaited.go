package eviction

import (
	"maps"
	"slices"
	"time"

	"jettison/stats"
)

// What the end of a victim is expected to return, of every amount and not only of what it was chosen for, and what of it came back.

// amounts are the kinds that are counted in what a victim returns. They come first.
const amounts = kindInodes + 1

// signalCount is how many signals there are: signalInfo.order is below it.
const signalCount = 14

// awaited is kept per eviction.
type awaited struct {
	marks    [signalCount]mark          // by signalInfo.order; of amounts only
	due      [amounts]stats.Opt[uint64] // what its end is expected to return, as known before the kill; absent: not known
	holds    [amounts]stats.Opt[uint64] // what of that it still had when it was measured after the kill; absent: it was not
	cache    uint64                     // bytes of page cache of that, which come a moment after its end
	shmem    sharedMemory               // comes later
	together                            // by its own signal
}

// mark is a signal as it stood when an eviction began, and the most that was left of it since the kill: what came back is at least the
// difference.
type mark struct {
	level, best uint64
	ok          bool // it was observed
	disk        owed // of a disk's signal
}

// amountOf is what a pod has of an amount that its end returns. Of disks that depends on the file system, so it is not known here.
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

// memoryReturned is what a pod's death returns of memory but for what is shared, which comes later: what is released, and page cache as far
// as it counts as used, for that is given back right after (internal/kill DropCache).
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

// await notes how every signal stands as an eviction begins, and what its end is expected to return of each.
func (m *Manager) await(l *Life) {
	m.unshare(l) // one that is hastened
	l.awaited = awaited{}
	for i := range m.watched {
		if w := &m.watched[i]; w.observed.OK && w.Amount() {
			l.marks[w.info.order] = mark{level: w.observed.Value, best: w.observed.Value, ok: true}
		}
	}
	m.owe(l, &l.e.Pod)
	l.cache = cacheOf(&l.e.Pod.Memory)
	for k := range l.due {
		l.due[k] = amountOf(&l.e.Pod, kind(k))
	}
	if w := m.watchedBy(&l.e, &l.met.Threshold); w != nil {
		l.together = w.together.without(&l.e.Pod, w.info.kind)
		m.letThrough(w)
	}
	l.expect()
	m.share(l)
}

// awaitAmounts is await for a disk's victim that is killed for what else is short: of the disk what was noted stands.
func (m *Manager) awaitAmounts(l *Life, p *stats.PodStats) {
	for i := range m.watched {
		w := &m.watched[i]
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

// came notes how much more is left of each signal than ever since the kill. A pod that is being stopped gently has returned nothing yet.
func (m *Manager) came(l *Life) {
	if l.killed.Time.IsZero() && !l.departed() {
		return
	}
	for i := range m.watched {
		w := &m.watched[i]
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

// remaining is what is still expected of an eviction for a signal: what the victim had when it was measured last, or as long as it was not,
// what came back already taken off, though others may have given that; and what it has in shared memory. Absent: not known.
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

// measured takes what a look says of a victim that was killed, or that is being stopped: one that leaks goes on leaking, and what it takes
// meanwhile it returns, too.
func (m *Manager) measured(l *Life, p *stats.PodStats) {
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
	if s, has := &l.shmem, p.Memory.ShmemBytes; l.killed.Time.IsZero() && s.left > 0 && has.OK && has.V <= implausible && has.V > s.bytes {
		more := has.V - s.bytes
		m.pool.need, s.left, s.bytes = stats.SaturatingAdd(m.pool.need, more), stats.SaturatingAdd(s.left, more), has.V
	}
}

// SavedTogether is what is kept of what all pods used when an eviction began.
type SavedTogether struct {
	Time time.Time `json:"time"`
	Pods uint64    `json:"pods"` // what they used of what the signal counts
	Left uint64    `json:"left"` // of the signal, at the same moment
	// Parted is when those that may go (May, without the victim) were told from those that may not; zero: not known.
	Parted time.Time `json:"parted,omitzero"`
	May    uint64    `json:"may,omitempty"`
	MayNot uint64    `json:"mayNot,omitempty"`
}

func (t *together) save() *SavedTogether {
	if t.at.IsZero() {
		return nil
	}
	return &SavedTogether{Time: t.at.Round(0), Pods: t.pods, Left: t.left, Parted: t.parted.Round(0), May: t.may, MayNot: t.mayNot}
}

func (t *together) resume(s *SavedTogether, drop func(string, ...any)) {
	switch {
	case s == nil:
	case max(s.Pods, s.Left, s.May, s.MayNot) > implausible:
		drop("what all pods used when an eviction began: a number that cannot be true")
	default:
		*t = together{at: s.Time, pods: s.Pods, left: s.Left, parts: parts{s.Parted, s.May, s.MayNot}}
	}
}

// SavedAwaited is what is kept of one signal, for an eviction.
type SavedAwaited struct {
	Level   *uint64 `json:"level,omitempty"`   // observed when it began; nil: it was not
	Best    uint64  `json:"best,omitempty"`    // the most since the kill
	Due     *uint64 `json:"due,omitempty"`     // of a disk: what the victim was measured to hold there; nil: it was not
	AtLeast bool    `json:"atLeast,omitempty"` // Due is a lower bound
}

// save is what is kept of it: by signal, and by what is counted.
func (a *awaited) save() (s map[string]SavedAwaited, due, holds map[string]uint64) {
	for signal, info := range signals {
		k := a.marks[info.order]
		if !k.ok && !k.disk.OK {
			continue
		}
		if s == nil {
			s = map[string]SavedAwaited{}
		}
		var saved SavedAwaited
		if k.ok {
			saved.Level, saved.Best = &k.level, k.best
		}
		if k.disk.OK {
			saved.Due, saved.AtLeast = &k.disk.V, k.disk.least
		}
		s[string(signal)] = saved
	}
	return s, saveAmounts(&a.due), saveAmounts(&a.holds)
}

func saveAmounts(of *[amounts]stats.Opt[uint64]) (out map[string]uint64) {
	for k, o := range of {
		if o.OK && out == nil {
			out = map[string]uint64{}
		}
		if o.OK {
			out[kindNames[k]] = o.V
		}
	}
	return out
}

// resume takes back what was saved. What is missing, as in the file of an agent before this one, is not known.
func (a *awaited) resume(s *SavedLife, drop func(string, ...any)) {
	for _, name := range slices.Sorted(maps.Keys(s.Awaited)) {
		info, known := signals[stats.Signal(name)]
		saved := s.Awaited[name]
		switch {
		case !known:
			drop("what is awaited of %.64q, which is no signal", name)
		case saved.Level != nil && *saved.Level > implausible || saved.Best > implausible || saved.Due != nil && *saved.Due > implausible:
			drop("what is awaited of %s: a number that cannot be true", name)
		default:
			k := &a.marks[info.order]
			if saved.Level != nil {
				*k = mark{level: *saved.Level, best: max(*saved.Level, saved.Best), ok: true}
			}
			if saved.Due != nil && info.kind.disk() {
				k.disk = owed{Opt: stats.Some(*saved.Due), least: saved.AtLeast}
			}
		}
	}
	resumeAmounts(&a.due, s.Due, drop)
	resumeAmounts(&a.holds, s.Holds, drop)
}

func resumeAmounts(to *[amounts]stats.Opt[uint64], saved map[string]uint64, drop func(string, ...any)) {
	for _, name := range slices.Sorted(maps.Keys(saved)) {
		k := slices.Index(kindNames[:amounts], name)
		if k < 0 || saved[name] > implausible {
			drop("what is awaited of %.64q: %d", name, saved[name])
			continue
		}
		to[k] = stats.Some(saved[name])
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
