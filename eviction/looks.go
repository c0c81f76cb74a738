package eviction

import "time"

// Situation holds facts that decide, together with the observations, whether a look at pods is
// worth its cost.
type Situation struct {
	ObserveDisks bool // see Input.ObserveDisks
	Limited      bool // a pod's object has limits on local storage
	Recording    bool // frames are recorded, also of a calm node
}

// Look is a kind of look at pods.
type Look uint8

const (
	LookNone   Look = iota
	LookMemory      // memory and tasks of pods, with Input.MemoryOnly
	LookFull
)

// Intervals between looks.
const (
	// between two observations while a victim's memory is being returned
	pollReturn = 5 * time.Millisecond
	// while a quick signal is short; and between two looks at memory that led to no eviction
	pollShort   = 100 * time.Millisecond
	pollCalm    = time.Second      // otherwise
	fullRetry   = 2 * time.Second  // between two full looks that led to no eviction
	fullRegular = 10 * time.Second // between two periodic full looks
)

// looks stores the times and kinds of looks.
type looks struct {
	situation Situation // of the last observation
	last      Look      // of the last step
	lastFull  time.Time // time of the last full look
	// time of the last look of each kind, if no eviction began after it
	fruitless [LookFull + 1]time.Time
}

// record stores that a look was made. It counts as fruitless until an eviction begins.
func (ls *looks) record(now time.Time, look Look) {
	ls.last, ls.fruitless[look] = look, now
	if look == LookFull {
		ls.lastFull = now
	}
}

// ledToEviction stores that the last look led to an eviction or confirmed one, so that the next
// look does not wait.
func (ls *looks) ledToEviction() { ls.fruitless[ls.last] = time.Time{} }

// due returns the kind of look to make now. memory and full report that a threshold asks for a
// victim that such a look finds. A look that led to no eviction is not repeated immediately.
func (ls *looks) due(now time.Time, memory, full, periodic bool) Look {
	switch {
	case memory && now.Sub(ls.fruitless[LookMemory]) >= pollShort:
		return LookMemory
	case periodic || full && now.Sub(ls.fruitless[LookFull]) >= fullRetry:
		return LookFull
	}
	return LookNone
}

// periodic reports whether a full look is due even if no threshold is met.
//
// Periodic looks enforce pods' own limits. They also track the counters that show which pod causes
// a pressure, and the files that show which pod fills a disk: both need an earlier value to compare
// with. quiet: a look at quiet disks is due. counters: pods' counters are tracked. local: pods' own
// limits are enforced.
func (ls *looks) periodic(now time.Time, quiet, counters, local bool) bool {
	s, since := &ls.situation, now.Sub(ls.lastFull)
	return quiet && since >= fullRetry ||
		since >= fullRegular && (counters || s.Recording || s.Limited && local && !s.ObserveDisks)
}
