package eviction

import "time"

// Situation is what decides whether a look at pods is worth its price, beside what is observed.
type Situation struct {
	ObserveDisks bool // as Input.ObserveDisks
	Limited      bool // some pod's object has limits on local storage
	Recording    bool // frames are wanted, also of a node that is calm
}

// Look at pods.
type Look uint8

// The looks.
const (
	LookNone   Look = iota
	LookMemory      // at the memory and tasks of pods, with Input.MemoryOnly
	LookFull
)

// When a look is worth its price again, and is made at the latest.
const (
	// between two observations while the memory of a victim is on its way back
	pollReturn = 5 * time.Millisecond
	// while a quick signal is short; and between two looks at memory that led to no eviction
	pollShort   = 100 * time.Millisecond
	pollCalm    = time.Second      // else
	fullAgain   = 2 * time.Second  // between two full looks that led to no eviction
	fullRegular = 10 * time.Second // between two full looks that are made whatever is met
)

// looks remembers when pods were looked at, and what for.
type looks struct {
	situation Situation               // of the last observation
	last      Look                    // of the last step
	lastFull  time.Time               // when a full one was made last
	fruitless [LookFull + 1]time.Time // when each was made last, if no eviction was begun after it
}

// looked remembers that a look was made, which leads to no eviction unless one is begun.
func (ls *looks) looked(now time.Time, look Look) {
	ls.last, ls.fruitless[look] = look, now
	if look == LookFull {
		ls.lastFull = now
	}
}

// ledToEviction notes that the last look led to an eviction, or to one that goes on: the next look
// does not wait.
func (ls *looks) ledToEviction() { ls.fruitless[ls.last] = time.Time{} }

// due returns the look that is worth its price, where victims are asked for that a look at memory
// finds, or only a full one. A look that led to no eviction is not repeated at once.
func (ls *looks) due(now time.Time, memory, full, periodic bool) Look {
	switch {
	case memory && now.Sub(ls.fruitless[LookMemory]) >= pollShort:
		return LookMemory
	case periodic || full && now.Sub(ls.fruitless[LookFull]) >= fullAgain:
		return LookFull
	}
	return LookNone
}

// periodic reports whether a full look is due whatever is met: pods have limits of their own to be
// held against, or counters that tell who causes a pressure, and files that tell who fills a disk,
// only against what they were before. Of these nothing is known until the first look after they
// were measured: the disk may be short soon. quiet: a look at disks that rest is due. counters:
// those of pods are followed. local: pods' limits are enforced.
func (ls *looks) periodic(now time.Time, quiet, counters, local bool) bool {
	s, since := &ls.situation, now.Sub(ls.lastFull)
	return quiet && since >= fullAgain ||
		since >= fullRegular && (counters || s.Recording || s.Limited && local && !s.ObserveDisks)
}
