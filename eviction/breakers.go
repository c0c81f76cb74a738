package eviction

import (
	"fmt"
	"maps"
	"time"

	"jettison/stats"
)

// breakers are those of all thresholds.
type breakers struct {
	config *Config
	by     map[breakerKey]breaker
}

// count takes whether an eviction that is over lowered the pressure on the threshold that it was
// for. false: that is not observed yet.
func (bs *breakers) count(now time.Time, l *Life, w *watched) bool {
	if l.e.Local() || !bs.config.Breaker || w == nil {
		return true
	}
	if !w.observed.OK {
		return false
	}
	if !w.met || w.observed.Better(l.level) {
		delete(bs.by, w.key())
		return true
	}
	outside, known := l.outside(now, w)
	if outside && known {
		b := bs.by[w.key()]
		b.inVain(now, &l.e)
		bs.by[w.key()] = b
	}
	return known
}

// calm lets the breaker act again for what is not short any more.
func (bs *breakers) calm(all []watched) {
	if !bs.config.Breaker {
		return
	}
	for i := range all {
		if w := &all[i]; w.observed.OK && w.since.IsZero() {
			delete(bs.by, w.key())
		}
	}
}

// stops reports whether evictions are held back for something that is short.
func (bs *breakers) stops() bool { return bs.futile(breakerLimit) }

// futile reports whether so many evictions were in vain for something that is short.
func (bs *breakers) futile(least int) bool {
	for _, b := range bs.by {
		if bs.config.Breaker && b.futile >= least {
			return true
		}
	}
	return false
}

// letThrough takes that an eviction begins which the breaker would have held back if its victim
// were not new and had not grown.
func (bs *breakers) letThrough(w *watched) {
	if b := bs.by[w.key()]; bs.config.Breaker && b.futile >= breakerLimit {
		b.futile, b.known, b.unread, b.tries, b.stopped = breakerLimit-1, nil, false,
			min(b.tries+1, maxTries), together{}
		bs.by[w.key()] = b
	}
}

// holdsBack reports whether the breaker holds back a threshold's victim. Where the first in the
// ranking is one that was not there when it stopped, nor made in the place of one that went in
// vain, or has grown since, it is tried once. Where pods grew more since then than all else, the
// first that has much more than then is, whoever stands before it, and is put in front: it leaks,
// and they do not.
func (bs *breakers) holdsBack(now time.Time, w *watched, ranked []Ranked) bool {
	b := bs.by[w.key()]
	if !bs.config.Breaker || b.futile < breakerLimit {
		return false
	}
	remembers := b.known == nil || b.unread
	if remembers {
		b.remember(ranked)
	}
	if remembers || b.stopped.at.IsZero() {
		b.noteStop(w)
		bs.by[w.key()] = b
	}
	if remembers || len(ranked) == 0 || now.Before(b.until) {
		return true
	}
	if first := &ranked[0].Candidate; b.isNew(w, first) && !b.inPlace(w, first) {
		return false
	}
	for i := range ranked[1:] {
		if i == 0 && !b.inside(now, w) && !b.insideDisk(w, ranked) {
			return true
		}
		if c := &ranked[1+i].Candidate; b.leaks(w, c, &ranked[0].Candidate) {
			putInFront(ranked, 1+i)
			return false
		}
	}
	return true
}

// unknown is a pod to be read in full, for the breaker to remember what it uses, or to know whether
// it has grown; nil: none. Nothing is lost by that: it has stopped.
func (bs *breakers) unknown(now time.Time, w *watched, may []Candidate) *stats.PodStats {
	b := bs.by[w.key()]
	remembers := b.known == nil || b.unread
	if !bs.config.Breaker || b.futile < breakerLimit ||
		!remembers && (now.Before(b.until) || !b.inside(now, w)) {
		return nil
	}
	for i := range may {
		c := &may[i]
		_, is := b.known[c.Pod.PodRef.UID]
		if c.inexact() && (remembers && !is || !remembers && b.isNew(w, c)) {
			return c.Pod
		}
	}
	return nil
}

// stoppedBecause names what grows instead.
func (bs *breakers) stoppedBecause(w *watched, growing []Growth) string {
	reason := fmt.Sprintf("%d evictions did not lower the pressure on %s: stopped",
		bs.by[w.key()].futile, w.Signal)
	var most Growth
	for _, g := range growing {
		if g.Bytes > most.Bytes {
			most = g
		}
	}
	if most.Bytes > 0 {
		reason += fmt.Sprintf(", %s grows instead, by %s", most.Cgroup, bytesQuantity(uint64(most.Bytes)))
	}
	return reason
}

// recollect returns a function that puts back what the breaker remembers of a threshold.
func (bs *breakers) recollect(w *watched) func() {
	b, stopped := bs.by[w.key()]
	b.known = maps.Clone(b.known)
	return func() {
		if stopped {
			bs.by[w.key()] = b
		}
	}
}
