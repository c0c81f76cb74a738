package eviction

import (
	"maps"
	"slices"
	"time"

	"jettison/stats"
)

// All limits of an eviction, in the order in which they come up.
const (
	// DieLimit is how long a kill, or the end of a grace period, may take to empty the pod's cgroup. Beyond it the pod counts as one that
	// does not die. A process dies within milliseconds unless the kernel holds it; a gigabyte takes a second to be freed on a slow machine.
	DieLimit = 10 * time.Second

	// settleLimit is how long after the end of its processes others wait for what a pod returns, and how long memory may take to be
	// back before the outcome is OutcomeNotBack. A runtime that tears a pod down takes memory first.
	settleLimit = 2 * time.Second

	// sharedLimit is the same where much lies in /dev/shm or in volumes in memory: that comes back when it is unmounted, by the agent, the
	// runtime, or the owner of the volume, which takes as long as it takes. leastShared is how much is worth waiting for.
	sharedLimit = 15 * time.Second
	leastShared = 16 << 20

	// cleanLimit is the same for disks, until the clean-up: containers, logs and volumes have to be removed first. Files that take longer
	// are still removed (RemoveLimit, for which the outcome waits, too), but a disk that fills meanwhile cannot wait for them.
	cleanLimit = 2 * time.Minute

	// diskSettle is how long after the clean-up a disk may take to show it: a runtime frees what a container wrote in its own time
	// (containerd's garbage collector pauses for fifty times as long as it worked last).
	diskSettle = time.Minute

	// RemoveLimit bounds the removal of a pod's files. A volume of some million files takes minutes.
	RemoveLimit = 5 * time.Minute

	// busyLimit is how long others of the agent's own, garbage collection and the reclaim of memory, make way for an eviction. One that
	// takes longer is held up by something else, and they might be what helps.
	busyLimit = time.Minute

	// A pod that was killed and did not die is ranked last for so long, doubled each time up to the maximum.
	setAsideFirst = 30 * time.Second
	setAsideMax   = 5 * time.Minute

	// rememberEvicted is how long a pod that was evicted is recognised when it comes back.
	rememberEvicted = time.Hour
)

// Stamp is an instant on both clocks, of which only the caller has any: they are kept, and the wall clock is reckoned with.
type Stamp = stats.Stamp

// Phase of an eviction. They come in this order, but for Undying, which may still turn to Emptied.
type Phase uint8

// The phases.
const (
	Stopping Phase = iota // it is in its grace period, or the runtime is what kills it
	Killed                // the kill was written, but processes may be left
	Emptied               // no process is left, but the runtime has not cleaned up
	Cleaned               // the runtime has cleaned up, but whether enough is back is not known
	Over                  // the outcome is known, and nothing is left to be carried out
	Undying               // it did not die, and is set aside
)

// Outcome is what became of an eviction.
type Outcome uint8

// The outcomes. Their words are those of records.
const (
	OutcomeUnknown Outcome = iota
	OutcomeBack            // enough is available again
	OutcomeNotBack         // the pod is dead, but not enough came back in time
	OutcomeUndying         // the pod did not die
)

var outcomeWords = [...]string{"", "back", "notBack", "undying"}

// String is the outcome in a word; empty while it is not known.
func (o Outcome) String() string { return outcomeWords[o] }

// Life is one eviction, from the moment its victim is pinned until all it returns is there. The Manager owns it and moves it on with
// what the caller reports; others only read it. Its three fields are the caller's: they are kept with the rest, and mean nothing
// here.
type Life struct {
	Record      string // ID of its record
	RemoveFiles bool   // what it leaves on disk is to be removed
	KillWaits   bool   // the kill is under way, and the kernel has not carried it out yet

	e        Eviction
	met      Met    // that asked for it; zero: the pod's own limit
	level    uint64 // observed when it began, in the signal's unit
	awaited         // of all signals
	began    Stamp
	deadline time.Time // of the grace period
	killed   Stamp     // zero: it is being stopped gently
	emptied  Stamp     // zero: it may have processes
	cleaned  Stamp     // zero: it is not, or the next reading of a disk counts whenever it was taken
	clean    bool      // cleaned up
	shared   bool      // much of what it returns is shared memory
	uncached bool      // its page cache was given back
	back     bool      // another cgroup or sandbox has its UID: what was killed is gone
	undying  bool
	refused  bool // the kernel did to kill it for what it was not chosen for
	gone     bool // nothing is carried out any more, and its outcome is not asked for
	resumed  bool // a process before this one has begun it
	settled  bool // others do not wait for it any more

	superseded bool // a later attempt at the same pod took its place

	outcome Outcome
	after   stats.Observation // when that became known
	shown   bool              // the outcome was in the last Ready
	told    bool              // and was acknowledged
	ending  bool              // likewise, as one that is over
	ended   bool
}

// Eviction that it is. It must not be changed.
func (l *Life) Eviction() *Eviction { return &l.e }

// Met is the threshold that asked for it, as it was decided on; zero: it is for the pod's own limit.
func (l *Life) Met() *Met { return &l.met }

// Began is when the victim was pinned.
func (l *Life) Began() Stamp { return l.began }

// Killed is when the kill was written; zero: it was not.
func (l *Life) Killed() Stamp { return l.killed }

// Emptied is when the last process was gone; zero: not known to be.
func (l *Life) Emptied() Stamp { return l.emptied }

// Cleaned is when the runtime had cleaned up; zero: it has not.
func (l *Life) Cleaned() Stamp { return l.cleaned }

// Deadline is the end of the grace period of one that was not killed.
func (l *Life) Deadline() time.Time { return l.deadline }

// Resumed reports whether a process before this one has begun it.
func (l *Life) Resumed() bool { return l.resumed }

// Outcome is what became of it, as far as that is known.
func (l *Life) Outcome() Outcome { return l.outcome }

// After is what was observed of its signal when the outcome became known.
func (l *Life) After() stats.Observation { return l.after }

// Dead reports whether no process of it is left.
func (l *Life) Dead() bool { return !l.emptied.Time.IsZero() }

// Leaving reports whether it is on its way out: not cleaned up, and not one that does not die.
func (l *Life) Leaving() bool { return !l.clean && !l.undying && !l.gone }

// Left reports whether nothing runs any more of what it was to end: no process is left of it, or another cgroup or sandbox has its UID.
func (l *Life) Left() bool { return l.departed() }

// Phase that it is in.
func (l *Life) Phase() Phase {
	switch {
	case l.gone || l.clean && l.outcome != OutcomeUnknown:
		return Over
	case l.undying:
		return Undying
	case l.clean && l.departed():
		return Cleaned
	case l.departed():
		return Emptied
	case !l.killed.Time.IsZero():
		return Killed
	}
	return Stopping
}

// Released is by how much more was available when the outcome became known than when the eviction was decided on. Of a share of time
// nothing is.
func (l *Life) Released() (amount uint64, ok bool) {
	before := &l.met.Observed
	if !l.Dead() || l.met.Threshold.Signal == "" || !l.met.Threshold.Amount() || !before.OK || !l.after.OK || l.after.Value < before.Value {
		return 0, false
	}
	return l.after.Value - before.Value, true
}

// Resting reports whether it did not die, and was tried so lately that to try again is of no use.
func (l *Life) Resting(now time.Time) bool { return l.undying && now.Sub(l.began.Time) < DieLimit }

// Lapsed reports whether its grace period has ended long ago without a kill, so that a process that takes it up after a restart had better
// have the victim chosen anew: what was short then may be plenty now.
func (l *Life) Lapsed(now time.Time) bool {
	return !l.departed() && l.killed.Time.IsZero() && now.Sub(l.deadline) > DieLimit
}

// dead: what was killed is gone, whatever has its UID now.
func (l *Life) departed() bool { return l.Dead() || l.back }

// dying: it may have processes, and will not for long.
func (l *Life) dying() bool { return !l.departed() && !l.undying && !l.settled }

// gentle: it has a grace period, which a hard threshold does not wait for.
func (l *Life) gentle() bool { return !l.e.hard && !l.e.Local() && !l.hastened() }

// hastened: a disk's victim was killed, for what else was short or for the disk's own hard threshold. It is told by the kill, for that
// outlives a restart: the runtime is what ends others.
func (l *Life) hastened() bool { return l.e.Disk() && !l.killed.Time.IsZero() }

// limit is how long what it returns may take, once no process is left.
func (l *Life) limit() time.Duration {
	if l.shared && (l.shmem.bytes == 0 || l.shmem.left > 0) {
		return sharedLimit
	}
	return settleLimit
}

// setAside is what is remembered of a pod that was killed and did not die.
type setAside struct {
	until time.Time
	next  time.Duration // how long the next time
}

// evicted remembers a pod that died.
type evicted struct {
	times int
	last  time.Time
}

// Begin takes that an eviction is carried out: its victim is pinned. met is the threshold that asked for it, zero for a pod's own limit.
// How much was available then is what was observed last. An earlier eviction of the same pod ends with it.
func (m *Manager) Begin(at Stamp, e Eviction, met Met) *Life {
	for _, l := range m.lives {
		if l.e.Pod.PodRef.UID == e.Pod.PodRef.UID {
			m.replaced(l)
		}
	}
	l := &Life{began: at}
	m.take(l, e, met)
	l.deadline = at.Time.Add(time.Duration(e.GracePeriodSeconds) * time.Second)
	m.lives = append(m.lives, l)
	return l
}

// Hasten takes that the grace period of an eviction was cut short by a kill: e and met are what asked for that. A disk's victim stays the
// disk's, whatever else was short meanwhile: its files are still to be removed, and the disk waits for them.
func (m *Manager) Hasten(at Stamp, l *Life, e Eviction, met Met) {
	if l.e.Disk() && !e.Disk() {
		m.fruitless[m.lastLook] = time.Time{}
		m.awaitAmounts(l, &e.Pod)
	} else {
		m.take(l, e, met)
	}
	l.killed = at
	m.lives = append(slices.DeleteFunc(m.lives, func(o *Life) bool { return o == l }), l)
}

// HastenRefused takes that the kernel refuses to kill a victim whose grace period was to be cut short. Where the runtime stops it in a
// second as it is, for a disk's hard threshold, it is left to that (true), and others get their turn. Else its eviction is to begin anew.
func (m *Manager) HastenRefused(l *Life) (left bool) {
	if left = l.e.hard && l.e.Disk(); left {
		l.refused, m.fruitless[m.lastLook] = true, time.Time{}
	}
	return left
}

// Unneeded takes that a grace period was not cut short after all, for enough was available again when that was measured once more. The
// eviction goes on, so that the look which asked for it was not in vain: the next one does not wait.
func (m *Manager) Unneeded() { m.fruitless[m.lastLook] = time.Time{} }

// Shared reports whether what it returns lay in shared memory, which comes back when it is unmounted and not when processes die.
func (l *Life) Shared() bool { return l.shared }

// take makes a life one of an eviction as it is decided on now.
func (m *Manager) take(l *Life, e Eviction, met Met) {
	l.e, l.met, l.level = e, met, m.observedBy(&e, &met.Threshold).Value
	m.await(l)
	shared := e.Pod.Memory.ShmemBytes
	l.shared = e.kind == kindMemory && shared.OK && shared.V > leastShared
	m.fruitless[m.lastLook] = time.Time{}
}

// Killed takes that the kill was written. Where the kernel refused it, the runtime is what stops the pod.
func (m *Manager) Killed(at Stamp, l *Life) { l.killed = at }

// Emptied takes that no process is left. One that had been set aside starts afresh; what it returns is not waited for any more.
func (m *Manager) Emptied(at Stamp, l *Life) {
	if l.Dead() || l.Phase() == Over {
		return
	}
	if l.emptied = at; l.undying {
		l.undying, l.outcome, l.told = false, OutcomeUnknown, false
	}
	if !l.back {
		m.died(at.Time, l)
	}
}

// Uncached takes that a dead victim's page cache was given back, as far as that could be.
func (m *Manager) Uncached(l *Life) { l.uncached = true }

// Cleaned takes that the runtime has cleaned up, or will not. With a zero time the next reading of a disk counts, whenever it was taken.
func (m *Manager) Cleaned(at Stamp, l *Life) {
	if l.Phase() == Over {
		return
	}
	if l.clean, l.cleaned = true, at; l.e.Disk() {
		m.diskCleaned = at.Time
	}
}

// Refused takes that the victim does not die: it is set aside, longer each time, and others get their turn.
func (m *Manager) Refused(now time.Time, l *Life) {
	if l.Phase() == Over || l.Dead() {
		return
	}
	m.letGo(l)
	l.undying = true
	l.outcome, l.after, l.told = OutcomeUndying, m.observedBy(&l.e, &l.met.Threshold), false
	m.Aside(now, l.e.Pod.PodRef.UID)
}

// Gone takes that nothing is left to be carried out for an eviction that a process before this one has begun: its outcome is not told. A
// pod that did not die stays set aside: that it is left alone is no death.
func (m *Manager) Gone(now time.Time, l *Life) {
	if l.gone = true; !l.departed() && !l.undying {
		l.emptied, l.cleaned, l.clean = Stamp{Time: now}, Stamp{Time: now}, true
		m.died(now, l)
	}
}

// Aside takes that a pod cannot be killed: it is ranked last for a while.
func (m *Manager) Aside(now time.Time, uid string) {
	m.clearMemory(now)
	a := m.aside[uid]
	a.next = min(max(a.next*2, setAsideFirst), setAsideMax)
	a.until = now.Add(a.next)
	m.aside[uid] = a
}

// died remembers that a pod has died.
func (m *Manager) died(now time.Time, l *Life) {
	m.clearMemory(now)
	uid := l.e.Pod.PodRef.UID
	delete(m.aside, uid)
	m.evicted[uid] = evicted{times: m.evicted[uid].times + 1, last: now}
	m.wroteOn(l)
}

// clearMemory forgets pods that were set aside, or evicted, long ago.
func (m *Manager) clearMemory(now time.Time) {
	maps.DeleteFunc(m.aside, func(_ string, a setAside) bool { return now.Sub(a.until) > 2*setAsideMax })
	maps.DeleteFunc(m.evicted, func(_ string, e evicted) bool { return now.Sub(e.last) > rememberEvicted })
}

// replaced: a later attempt took its place, which cleans up for both.
func (m *Manager) replaced(l *Life) {
	if l.outcome == OutcomeUnknown {
		l.after = m.observedBy(&l.e, &l.met.Threshold)
		l.outcome = OutcomeUndying
		if l.departed() {
			l.outcome = OutcomeNotBack
		}
	}
	m.letGo(l)
	l.clean, l.superseded = true, true
}

// Life is the eviction of a pod that is not over; nil: there is none.
func (m *Manager) Life(uid string) *Life {
	for _, l := range slices.Backward(m.lives) {
		if l.e.Pod.PodRef.UID == uid && l.Phase() != Over {
			return l
		}
	}
	return nil
}

// untold: its outcome is known, and the caller has not taken it yet. One that a later attempt took the place of is not kept for that.
func (l *Life) untold() bool {
	return l.outcome != OutcomeUnknown && !l.told && !l.gone && !l.superseded
}

// Lives are the evictions that are not over, or whose outcome is still to be told, in the order in which they were begun or hastened.
func (m *Manager) Lives() []*Life {
	var out []*Life
	for _, l := range m.lives {
		if l.Phase() != Over || l.untold() {
			out = append(out, l)
		}
	}
	return out
}

// dying is the eviction of a pod that still lives and is not set aside; nil: none.
func (m *Manager) dying(uid string) *Life {
	for _, l := range m.lives {
		if l.dying() && l.e.Pod.PodRef.UID == uid {
			return l
		}
	}
	return nil
}

// conclude finds out what became of an eviction: whether what was short is back by an observation, or is not in time, or gets much
// worse, for another pod eats what the victim returns.
func (m *Manager) conclude(now time.Time, l *Life) {
	if l.outcome != OutcomeUnknown || l.gone || !l.Dead() {
		return
	}
	w, known, waited := m.watchedBy(&l.e, &l.met.Threshold), true, now.Sub(l.emptied.Time) >= l.limit()
	if l.e.Disk() { // what lies there is back only with the clean-up, and is measured now and then
		known = l.clean && w != nil && w.observed.Time.After(l.cleaned.Time)
		waited = l.clean && now.Sub(l.cleaned.Time) >= diskSettle || !l.clean && now.Sub(l.emptied.Time) >= RemoveLimit
	}
	back, worse := known, false
	switch {
	case l.e.Local():
		back = l.clean
	case l.e.Planned():
		back, waited = !l.sharedAwaited(now), false
	case w != nil:
		back = known && w.observed.OK && !w.met
		worse = !l.clean && w.observed.OK && w.observed.HalfGone(l.level)
		l.after = w.observed
	}
	switch {
	case back:
		l.outcome = OutcomeBack
	case waited || worse:
		l.outcome = OutcomeNotBack
	}
}
