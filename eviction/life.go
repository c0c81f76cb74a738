package eviction

import (
	"time"

	"jettison/stats"
)

// The limits of an eviction, in the order in which they apply.
const (
	// DieLimit bounds the time from a kill, or the end of a grace period, to an empty cgroup. After
	// it the pod counts as undying. A process dies within milliseconds unless the kernel holds it;
	// freeing a gigabyte takes a second on a slow machine.
	DieLimit = 10 * time.Second

	// settleLimit bounds how long other thresholds wait for a victim's returns after its last process
	// ended. It also bounds how long memory may take to recover before the outcome is OutcomeNotBack.
	// A runtime that tears a pod down first uses memory itself.
	settleLimit = 2 * time.Second

	// sharedLimit replaces settleLimit for a victim with more than leastShared bytes in /dev/shm or
	// in volumes in memory. That memory is freed when the agent, the runtime or the owner of the
	// volume unmounts it, which may take any time.
	sharedLimit = 15 * time.Second
	leastShared = 16 << 20

	// cleanLimit replaces settleLimit for disks, until the clean-up has removed containers, logs and
	// volumes. Files that take longer are still removed. The outcome waits for their removal
	// (RemoveLimit), but a disk that fills meanwhile does not.
	cleanLimit = 2 * time.Minute

	// diskSettle bounds the time from the clean-up until a disk shows the freed space. A runtime
	// frees the files of a container later: containerd's garbage collector pauses for fifty times the
	// length of its last run.
	diskSettle = time.Minute

	// RemoveLimit bounds the removal of a pod's files. A volume of some million files takes minutes.
	RemoveLimit = 5 * time.Minute

	// busyLimit bounds how long garbage collection and proactive reclaim pause for an eviction. If
	// the eviction takes longer, resuming them may help.
	busyLimit = time.Minute

	// A pod that survived its kill is ranked last for setAsideFirst. The time doubles with each
	// attempt, up to setAsideMax.
	setAsideFirst = 30 * time.Second
	setAsideMax   = 5 * time.Minute

	// rememberEvicted bounds the time in which an evicted pod is recognized when it returns.
	rememberEvicted = time.Hour
)

// Stamp is an instant on both clocks, read by the caller. The Manager stores both and computes with
// the wall clock.
type Stamp = stats.Stamp

// Phase of an eviction. Phases follow this order, except that Undying may still change to Emptied.
type Phase uint8

const (
	Stopping Phase = iota // in its grace period, or killed by the runtime
	Killed                // the kill was written; processes may be left
	Emptied               // no process is left; the runtime has not cleaned up
	Cleaned               // the runtime has cleaned up; the outcome is unknown
	Over                  // the outcome is known and nothing is left to carry out
	Undying               // the pod survived its kill and is set aside
)

// Outcome of an eviction.
type Outcome uint8

// The outcomes. Records contain their words.
const (
	OutcomeUnknown Outcome = iota
	OutcomeBack            // enough is available again
	OutcomeNotBack         // the pod is dead, but not enough was returned in time
	OutcomeUndying         // the pod did not die
)

var outcomeWords = [...]string{"", "back", "notBack", "undying"}

// String returns the outcome in one word, empty while it is unknown.
func (o Outcome) String() string { return outcomeWords[o] }

// Life is one eviction, from the moment its victim is pinned until everything that it returns is
// available. The Manager owns it and updates it with the caller's reports; others only read it. The
// exported fields belong to the caller: the Manager saves them but does not use them.
type Life struct {
	Record      string // ID of its record
	RemoveFiles bool   // remove the files that the pod leaves on disk
	KillPending bool   // a kill is pending in the kernel

	e        Eviction
	met      Met    // threshold that the eviction is for; zero: the pod's own limit
	level    uint64 // value at the start, in the signal's unit
	awaited         // of all signals
	began    Stamp
	deadline time.Time // end of the grace period
	killed   Stamp     // zero: stopped within its grace period
	emptied  Stamp     // zero: processes may be left
	// zero: not cleaned up; with cleanedUp: any reading of a disk counts as later
	cleaned      Stamp
	cleanedUp    bool // the runtime has cleaned up
	hasShmem     bool // a large part of the returns is shared memory
	cacheDropped bool // the victim's page cache was dropped
	recreated    bool // another cgroup or sandbox has the victim's UID, so the killed pod is gone
	undying      bool
	killRefused  bool // the kernel refused a kill for a shortage other than the victim's own
	abandoned    bool // nothing is left to carry out, and the outcome is not reported
	resumed      bool // an earlier process began the eviction
	settled      bool // other thresholds no longer wait for this eviction

	superseded bool // a later attempt at the same pod replaced it

	outcome         Outcome
	observedAfter   stats.Observation // the observation when the outcome became known
	outcomeReported bool              // the last Ready contained the outcome
	outcomeAcked    bool              // the caller acknowledged the outcome
	endReported     bool              // the last Ready listed the eviction as finished
	endAcked        bool
}

// Eviction returns the eviction that the life follows. The caller must not change it.
func (l *Life) Eviction() *Eviction { return &l.e }

// Met returns the threshold that the eviction is for, as it was when decided; zero for the pod's
// own limit.
func (l *Life) Met() *Met { return &l.met }

// Began returns when the victim was pinned.
func (l *Life) Began() Stamp { return l.began }

// Killed returns when the kill was written; zero if it was not.
func (l *Life) Killed() Stamp { return l.killed }

// Emptied returns when the last process ended; zero if processes may be left.
func (l *Life) Emptied() Stamp { return l.emptied }

// Cleaned returns when the runtime had cleaned up; zero if it has not.
func (l *Life) Cleaned() Stamp { return l.cleaned }

// Deadline returns the end of the grace period of a victim that was not killed.
func (l *Life) Deadline() time.Time { return l.deadline }

// Resumed reports whether an earlier process began the eviction.
func (l *Life) Resumed() bool { return l.resumed }

// Outcome returns the outcome, or OutcomeUnknown.
func (l *Life) Outcome() Outcome { return l.outcome }

// ObservedAfter returns the signal's observation when the outcome became known.
func (l *Life) ObservedAfter() stats.Observation { return l.observedAfter }

// Dead reports whether no process of the victim is left.
func (l *Life) Dead() bool { return !l.emptied.Time.IsZero() }

// CleaningUp reports whether the victim is being torn down: not cleaned up yet, and not undying.
func (l *Life) CleaningUp() bool { return !l.cleanedUp && !l.undying && !l.abandoned }

// Terminated reports whether the victim no longer runs: none of its processes is left, or another
// cgroup or sandbox has its UID.
func (l *Life) Terminated() bool { return l.terminated() }

// Phase returns the current phase.
func (l *Life) Phase() Phase {
	switch {
	case l.abandoned || l.cleanedUp && l.outcome != OutcomeUnknown:
		return Over
	case l.undying:
		return Undying
	case l.cleanedUp && l.terminated():
		return Cleaned
	case l.terminated():
		return Emptied
	case !l.killed.Time.IsZero():
		return Killed
	}
	return Stopping
}

// Released returns how much more was available when the outcome became known than when the eviction
// was decided. ok is false for signals that are a share of time.
func (l *Life) Released() (amount uint64, ok bool) {
	before := &l.met.Observed
	if !l.Dead() || l.met.Threshold.Signal == "" || !l.met.Threshold.Amount() || !before.OK ||
		!l.observedAfter.OK || l.observedAfter.Value < before.Value {
		return 0, false
	}
	return l.observedAfter.Value - before.Value, true
}

// RecentlyUndying reports whether the victim survived a kill so recently that another attempt is
// useless.
func (l *Life) RecentlyUndying(now time.Time) bool {
	return l.undying && now.Sub(l.began.Time) < DieLimit
}

// DieWithin returns how long a killed victim may still take to die: the rest of DieLimit since the
// kill, so that restarts of the agent do not prolong the wait, but at least settleLimit.
func (l *Life) DieWithin(now Stamp) time.Duration {
	since, known := now.Since(l.killed)
	if !known {
		return DieLimit
	}
	return max(DieLimit-since, settleLimit)
}

// GracePeriodLapsed reports whether the grace period ended more than DieLimit ago without a kill. A
// process that resumes such an eviction should choose the victim again, because the shortage may
// have ended.
func (l *Life) GracePeriodLapsed(now time.Time) bool {
	return !l.terminated() && l.killed.Time.IsZero() && now.Sub(l.deadline) > DieLimit
}

// terminated reports whether the killed pod is gone. Another pod may have its UID now.
func (l *Life) terminated() bool { return l.Dead() || l.recreated }

// terminating reports whether the victim may have processes that will end soon.
func (l *Life) terminating() bool { return !l.terminated() && !l.undying && !l.settled }

// hasGracePeriod reports whether the victim got a grace period, for which no hard threshold waits.
func (l *Life) hasGracePeriod() bool { return !l.e.hard && !l.e.Local() && !l.hastened() }

// hastened reports whether a victim for a disk was killed, for another shortage or for the disk's
// own hard threshold. The runtime stops all other victims for a disk, so the saved time of the kill
// is enough to recognize this case after a restart.
func (l *Life) hastened() bool { return l.e.Disk() && !l.killed.Time.IsZero() }

// returnLimit returns how long the victim's returns may take after its last process ended.
func (l *Life) returnLimit() time.Duration {
	if l.hasShmem && (l.shmem.bytes == 0 || l.shmem.pending > 0) {
		return sharedLimit
	}
	return settleLimit
}

// HasSharedMemory reports whether a large part of the victim's returns is shared memory, which an
// unmount frees, not the death of processes.
func (l *Life) HasSharedMemory() bool { return l.hasShmem }

// unacknowledged reports whether the outcome is known and still needs the caller's acknowledgement.
// The outcome of a superseded eviction needs none.
func (l *Life) unacknowledged() bool {
	return l.outcome != OutcomeUnknown && !l.outcomeAcked && !l.abandoned && !l.superseded
}
