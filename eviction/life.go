package eviction

import (
	"time"

	"jettison/stats"
)

// All limits of an eviction, in the order in which they come up.
const (
	// DieLimit is how long a kill, or the end of a grace period, may take to empty the pod's cgroup.
	// Beyond it the pod counts as one that does not die. A process dies within milliseconds unless the
	// kernel holds it; a gigabyte takes a second to be freed on a slow machine.
	DieLimit = 10 * time.Second

	// settleLimit is how long after the end of its processes others wait for what a pod returns, and
	// how long memory may take to be back before the outcome is OutcomeNotBack. A runtime that tears a
	// pod down takes memory first.
	settleLimit = 2 * time.Second

	// sharedLimit is the same where much lies in /dev/shm or in volumes in memory: that comes back
	// when it is unmounted, by the agent, the runtime, or the owner of the volume, which takes as long
	// as it takes. leastShared is how much is worth waiting for.
	sharedLimit = 15 * time.Second
	leastShared = 16 << 20

	// cleanLimit is the same for disks, until the clean-up: containers, logs and volumes have to be
	// removed first. Files that take longer are still removed (RemoveLimit, for which the outcome
	// waits, too), but a disk that fills meanwhile cannot wait for them.
	cleanLimit = 2 * time.Minute

	// diskSettle is how long after the clean-up a disk may take to show it: a runtime frees what a
	// container wrote in its own time (containerd's garbage collector pauses for fifty times as long
	// as it worked last).
	diskSettle = time.Minute

	// RemoveLimit bounds the removal of a pod's files. A volume of some million files takes minutes.
	RemoveLimit = 5 * time.Minute

	// busyLimit is how long others of the agent's own, garbage collection and the reclaim of memory,
	// make way for an eviction. One that takes longer is held up by something else, and they might be
	// what helps.
	busyLimit = time.Minute

	// A pod that was killed and did not die is ranked last for so long, doubled each time up to the
	// maximum.
	setAsideFirst = 30 * time.Second
	setAsideMax   = 5 * time.Minute

	// rememberEvicted is how long a pod that was evicted is recognised when it comes back.
	rememberEvicted = time.Hour
)

// Stamp is an instant on both clocks, of which only the caller has any: they are kept, and the wall
// clock is reckoned with.
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

// Life is one eviction, from the moment its victim is pinned until all it returns is there. The
// Manager owns it and moves it on with what the caller reports; others only read it. Its three
// fields are the caller's: they are kept with the rest, and mean nothing here.
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

// Met is the threshold that asked for it, as it was decided on; zero: it is for the pod's own
// limit.
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

// Left reports whether nothing runs any more of what it was to end: no process is left of it, or
// another cgroup or sandbox has its UID.
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

// Released is by how much more was available when the outcome became known than when the eviction
// was decided on. Of a share of time nothing is.
func (l *Life) Released() (amount uint64, ok bool) {
	before := &l.met.Observed
	if !l.Dead() || l.met.Threshold.Signal == "" || !l.met.Threshold.Amount() || !before.OK ||
		!l.after.OK || l.after.Value < before.Value {
		return 0, false
	}
	return l.after.Value - before.Value, true
}

// Resting reports whether it did not die, and was tried so lately that to try again is of no use.
func (l *Life) Resting(now time.Time) bool { return l.undying && now.Sub(l.began.Time) < DieLimit }

// Lapsed reports whether its grace period has ended long ago without a kill, so that a process that
// takes it up after a restart had better have the victim chosen anew: what was short then may be
// plenty now.
func (l *Life) Lapsed(now time.Time) bool {
	return !l.departed() && l.killed.Time.IsZero() && now.Sub(l.deadline) > DieLimit
}

// dead: what was killed is gone, whatever has its UID now.
func (l *Life) departed() bool { return l.Dead() || l.back }

// dying: it may have processes, and will not for long.
func (l *Life) dying() bool { return !l.departed() && !l.undying && !l.settled }

// gentle: it has a grace period, which a hard threshold does not wait for.
func (l *Life) gentle() bool { return !l.e.hard && !l.e.Local() && !l.hastened() }

// hastened: a disk's victim was killed, for what else was short or for the disk's own hard
// threshold. It is told by the kill, for that outlives a restart: the runtime is what ends others.
func (l *Life) hastened() bool { return l.e.Disk() && !l.killed.Time.IsZero() }

// limit is how long what it returns may take, once no process is left.
func (l *Life) limit() time.Duration {
	if l.shared && (l.shmem.bytes == 0 || l.shmem.left > 0) {
		return sharedLimit
	}
	return settleLimit
}

// Shared reports whether what it returns lay in shared memory, which comes back when it is
// unmounted and not when processes die.
func (l *Life) Shared() bool { return l.shared }

// untold: its outcome is known, and the caller has not taken it yet. One that a later attempt took
// the place of is not kept for that.
func (l *Life) untold() bool {
	return l.outcome != OutcomeUnknown && !l.told && !l.gone && !l.superseded
}
