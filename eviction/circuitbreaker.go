package eviction

import (
	"strings"
	"time"

	"jettison/stats"
)

// The breaker stops evictions that do not help: something else than pods takes what is short, and
// each further victim dies for nothing.

// breakerLimit is after how many evictions in a row for one threshold that did not lower the
// pressure the breaker stops. One that did not because other pods grew is none of them: the next
// pod's end may help.
const breakerLimit = 3

// Growth of a cgroup.
type Growth struct {
	Cgroup string // path below the root
	Bytes  int64  // memory that it uses more than before
}

// After one that was let through and did not help either, the next one waits: 30 s, doubled each
// time up to the maximum. So a pod that is really new gets its turn within that, and what is made
// anew again and again costs one pod in five minutes.
const (
	nextTry    = 30 * time.Second
	nextTryMax = 5 * time.Minute
)

// breaker is kept per threshold: what a soft one did in vain says nothing of a hard one.
type breaker struct {
	futile int // evictions in a row that did not lower the pressure
	// known are the pods that could have gone when it stopped, and what each used; nil: it has not
	// looked since. What was there then is not what will help now. Upper bounds are not in it: page
	// cache would hide a leak.
	known  map[string]uint64
	unread bool // some are missing in known, for of them only an upper bound was read
	// vain is what those returned that went in vain, by their kin: one that was made in the place of
	// another is not new.
	vain  map[string]uint64
	tries int       // let through after it had stopped
	until time.Time // none is let through before; zero: none was yet
	// stopped is what all pods used when it stopped, and what was left then. Of a disk it is the
	// latter only.
	stopped together
}

// breakerKey tells thresholds apart.
type breakerKey struct {
	signal stats.Signal
	hard   bool
}

func (w *watched) key() breakerKey { return breakerKey{w.Signal, w.Hard()} }

// inVain counts an eviction that did not help.
func (b *breaker) inVain(now time.Time, e *Eviction) {
	if b.futile++; b.futile >= breakerLimit && b.tries > 0 {
		b.until = now.Add(tryAfter(b.tries))
	}
	if of := kin(e.Pod.PodRef.Namespace, e.Pod.PodRef.Name); of != "" {
		if b.vain == nil {
			b.vain = map[string]uint64{}
		}
		if _, is := b.vain[of]; is || len(b.vain) < maxRemembered {
			b.vain[of] = max(b.vain[of], e.Returns)
		}
	}
}

// tryAfter is how long the next one waits after so many.
func tryAfter(tries int) time.Duration {
	wait := nextTry
	for range min(tries, maxTries) - 1 {
		wait = min(2*wait, nextTryMax)
	}
	return wait
}

// kin names a pod's maker, by its name without what was made for it alone: five characters
// (k8s.io/apimachinery/pkg/util/rand) or a number. Empty: its name is not known.
func kin(namespace, name string) string {
	const made = "bcdfghjklmnpqrstvwxz2456789"
	if name == "" {
		return ""
	}
	if at := strings.LastIndexByte(name, '-'); at > 0 {
		own := name[at+1:]
		if number := own != "" && strings.Trim(own, "0123456789") == ""; number || len(own) == 5 &&
			strings.Trim(own, made) == "" {
			name = name[:at]
		}
	}
	return namespace + "/" + name
}

// putInFront has another one than the first be the victim.
func putInFront(ranked []Ranked, at int) {
	c := ranked[at]
	copy(ranked[1:at+1], ranked[:at])
	ranked[0], ranked[0].DecidedBy, ranked[1].DecidedBy = c, "", "grown since evictions were stopped"
}

// noteStop keeps how a signal stood when it stopped.
func (b *breaker) noteStop(w *watched) {
	switch {
	case !b.stopped.at.IsZero():
	case w.info.kind.disk():
		b.stopped = together{at: w.observed.Time, left: w.observed.Value}
	default:
		b.stopped = w.together
	}
}

// isNew: a pod was not there when it stopped, or has grown since.
func (b *breaker) isNew(w *watched, c *Candidate) bool {
	had, was := b.known[c.Pod.PodRef.UID]
	return !was || w.grewFrom(had, c.Keys.Usage)
}

// inPlace: a pod was made in the place of one that went in vain, and returns no more than that.
func (b *breaker) inPlace(w *watched, c *Candidate) bool {
	name := c.Pod.PodRef.Name
	if name == "" && c.Object != nil {
		name = c.Object.Ref.Name
	}
	had, was := b.vain[kin(c.namespace(), name)]
	return was && !w.grewFrom(had, expected(c, w).V)
}

// leaks: a pod that is not the first has grown since it stopped: it alone makes a difference, it
// may die, and it is not within its request where the first is not.
func (b *breaker) leaks(w *watched, c, first *Candidate) bool {
	spared := c.Keys.SetAside || c.Keys.standing() == withinRequest &&
		first.Keys.standing() != withinRequest
	return !spared && w.grewFrom(b.known[c.Pod.PodRef.UID], c.Keys.Usage) && !b.inPlace(w, c)
}

// inside reports whether pods that may go grew by much since it stopped, and by at least half of
// what is left less. What is not known counts as outside.
func (b *breaker) inside(now time.Time, w *watched) bool {
	then, is := b.stopped, w.together
	if w.info.kind.disk() || then.at.IsZero() || is.at.IsZero() || now.Sub(is.at) > stats.MaxAge {
		return false
	}
	grew := int64(is.pods) - int64(then.pods)
	if !then.parted.IsZero() && is.parted.After(then.parted) {
		grew -= then.grewOf(&is.parts, grew)
	}
	return w.explains(grew, int64(then.left)-int64(is.left))
}

// insideDisk is inside for a disk, by what was found of each pod.
func (b *breaker) insideDisk(w *watched, ranked []Ranked) bool {
	if !w.info.kind.disk() || b.stopped.at.IsZero() {
		return false
	}
	grew := uint64(0)
	for i := range ranked {
		c := &ranked[i].Candidate
		grew = stats.SaturatingAdd(grew, c.Keys.Usage-min(c.Keys.Usage, b.known[c.Pod.PodRef.UID]))
	}
	return w.explains(int64(min(grew, implausible)), int64(b.stopped.left)-int64(w.observed.Value))
}

// explains: pods grew by much, and by at least half of what is left less.
func (w *watched) explains(grew, fell int64) bool {
	return grew > 0 && w.grewFrom(0, uint64(grew)) && grew >= fell/2
}

// grewFrom reports whether a pod has so much more that its end may help.
func (w *watched) grewFrom(had, has uint64) bool {
	enough := had/dip + 1
	if w.Amount() {
		enough = max(enough, w.limit/dip)
	}
	return has >= stats.SaturatingAdd(had, enough)
}

// remember notes who could have gone, now that it has stopped. Those of which only an upper bound
// was read are noted in the next look, for which Unread has them read; if that fails they count as
// new.
func (b *breaker) remember(ranked []Ranked) {
	again := b.known != nil
	if !again {
		b.known = make(map[string]uint64, len(ranked))
	}
	b.unread = false
	for i := range ranked[:min(len(ranked), maxRemembered)] {
		c := &ranked[i].Candidate
		uid := c.Pod.PodRef.UID
		switch _, is := b.known[uid]; {
		case is:
		case c.inexact():
			b.unread = !again
		case len(b.known) < maxRemembered:
			b.known[uid] = c.Keys.Usage
		}
	}
}

// inexact: only an upper bound of what it uses was read.
func (c *Candidate) inexact() bool {
	return c.Pod.Memory.Quick && releaseKind(c.Keys.kind) == kindMemory
}
