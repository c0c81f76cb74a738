package eviction

import (
	"fmt"
	"strings"
	"time"

	"jettison/stats"
)

// The breaker stops evictions that do not help: something else than pods takes what is short, and each further victim dies for nothing.

// breakerLimit is after how many evictions in a row for one threshold that did not lower the pressure the breaker stops. One that did
// not because other pods grew is none of them: the next pod's end may help.
const breakerLimit = 3

// Growth of a cgroup.
type Growth struct {
	Cgroup string // path below the root
	Bytes  int64  // memory that it uses more than before
}

// After one that was let through and did not help either, the next one waits: 30 s, doubled each time up to the maximum. So a pod that is
// really new gets its turn within that, and what is made anew again and again costs one pod in five minutes.
const (
	nextTry    = 30 * time.Second
	nextTryMax = 5 * time.Minute
)

// breaker is kept per threshold: what a soft one did in vain says nothing of a hard one.
type breaker struct {
	futile int // evictions in a row that did not lower the pressure
	// known are the pods that could have gone when it stopped, and what each used; nil: it has not looked since. What was there then is
	// not what will help now. Upper bounds are not in it: page cache would hide a leak.
	known  map[string]uint64
	unread bool // some are missing in known, for of them only an upper bound was read
	// vain is what those returned that went in vain, by their kin: one that was made in the place of another is not new.
	vain  map[string]uint64
	tries int       // let through after it had stopped
	until time.Time // none is let through before; zero: none was yet
	// stopped is what all pods used when it stopped, and what was left then. Of a disk it is the latter only.
	stopped together
}

// breakerKey tells thresholds apart.
type breakerKey struct {
	signal stats.Signal
	hard   bool
}

func (w *watched) key() breakerKey { return breakerKey{w.Signal, w.Hard()} }

// together is what all pods used of an amount at one moment, and what was left of it then.
type together struct {
	at         time.Time // zero: it was not read
	pods, left uint64
	parts
}

// parts of what pods use: of those that may go, and of those that may not. Of memory that is with page cache, for it is read of all.
type parts struct {
	parted      time.Time // zero: not known
	may, mayNot uint64
}

// notes takes a new reading of what all pods use together, with what is left at the same moment.
func (w *watched) notes(p *stats.PodsTotal) {
	used := stats.Opt[uint64]{}
	switch w.info.kind {
	case kindMemory:
		used = p.WorkingSetBytes
	case kindSwap:
		used = p.SwapBytes
	case kindPID:
		used = p.Tasks
	}
	if used.OK && used.V <= implausible && w.observed.OK && !p.Time.Equal(w.together.at) {
		w.together.at, w.together.pods, w.together.left = p.Time, used.V, w.observed.Value
	}
}

// counted is what a pod uses of an amount, as it is read of all pods in every look that decides on that.
func counted(p *stats.PodStats, k kind) (used uint64) {
	o := p.Threads
	switch {
	case k == kindMemory && p.Memory.UsageBytes.OK:
		o = p.Memory.UsageBytes
	case k == kindMemory:
		o = p.Memory.WorkingSetBytes
	case k == kindSwap:
		o = p.Memory.SwapBytes
	}
	if !o.OK || o.V > implausible {
		return 0
	}
	return o.V
}

// part tells what pods that may go use from what the others do, for each threshold that is met. It does not allocate.
func (m *Manager) part(now time.Time, in Input) {
	for i := range m.watched {
		w := &m.watched[i]
		if !m.config.Breaker || !w.met || w.together.at.IsZero() || in.MemoryOnly && !w.info.kind.memoryView() {
			continue
		}
		w.parts = parts{parted: now}
		for j := range in.Summary.Pods {
			p := &in.Summary.Pods[j]
			object := in.object(p)
			if empty(p, object) {
				continue
			}
			if c := m.config.Policy.candidate(p, object); c.Protected != "" {
				w.mayNot = stats.SaturatingAdd(w.mayNot, counted(p, w.info.kind))
			} else {
				w.may = stats.SaturatingAdd(w.may, counted(p, w.info.kind))
			}
		}
	}
}

// without is the same without a victim.
func (t together) without(p *stats.PodStats, k kind) together {
	t.may -= min(t.may, counted(p, k))
	return t
}

// outside reports whether what took what a victim gave back grew outside of the pods that may go, by what pods used when the eviction
// began and what they use now: at least half of what grew, and of what the victim gave back. What is not known counts as outside, as for
// disks and pressure. known is false while no reading is newer than the victim's end.
func (l *Life) outside(now time.Time, w *watched) (outside, known bool) {
	then, is := l.together, w.together
	if then.at.IsZero() || is.at.IsZero() || now.Sub(is.at) > stats.MaxAge {
		return true, true
	}
	awaited := !then.parted.IsZero() && !is.parted.After(l.emptied.Time) && now.Sub(l.emptied.Time) <= stats.MaxAge
	if awaited || !is.at.After(l.emptied.Time) {
		return false, false
	}
	fell := int64(then.left) - int64(is.left)
	returned := int64(l.e.Returns)
	inside := int64(is.pods) - int64(then.pods) + returned
	grew := fell + returned - inside
	if !then.parted.IsZero() && is.parted.After(l.emptied.Time) {
		grew += then.grewOf(&is.parts, inside)
	}
	return grew > 0 && grew >= returned/2 && grew >= (fell+returned)/2, true
}

// grewOf is by how much of what grew in pods those grew that may not go. Page cache is in both parts, but not in what grew: what those that
// may go can have grown by is not put down to the others.
func (p *parts) grewOf(is *parts, grew int64) int64 {
	may, mayNot := int64(is.may)-int64(p.may), int64(is.mayNot)-int64(p.mayNot)
	return max(0, min(mayNot, grew-max(may, 0)))
}

// count takes whether an eviction that is over lowered the pressure. false: that is not observed yet.
func (m *Manager) count(now time.Time, l *Life) bool {
	w := m.watchedBy(&l.e, &l.met.Threshold)
	if l.e.Local() || !m.config.Breaker || w == nil {
		return true
	}
	if !w.observed.OK {
		return false
	}
	if !w.met || w.observed.Better(l.level) {
		delete(m.breakers, w.key())
		return true
	}
	outside, known := l.outside(now, w)
	if outside && known {
		b := m.breakers[w.key()]
		b.inVain(now, &l.e)
		m.breakers[w.key()] = b
	}
	return known
}

// calm lets the breaker act again for what is not short any more.
func (m *Manager) calm() {
	for i := range m.watched {
		if w := &m.watched[i]; w.observed.OK && w.since.IsZero() {
			delete(m.breakers, w.key())
		}
	}
}

// stops reports whether evictions are held back for something that is short.
func (m *Manager) stops() bool { return m.futile(breakerLimit) }

// futile reports whether so many evictions were in vain for something that is short.
func (m *Manager) futile(least int) bool {
	for _, b := range m.breakers {
		if m.config.Breaker && b.futile >= least {
			return true
		}
	}
	return false
}

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

// kin names a pod's maker, by its name without what was made for it alone: five characters (k8s.io/apimachinery/pkg/util/rand) or a number.
// Empty: its name is not known.
func kin(namespace, name string) string {
	const made = "bcdfghjklmnpqrstvwxz2456789"
	if name == "" {
		return ""
	}
	if at := strings.LastIndexByte(name, '-'); at > 0 {
		own := name[at+1:]
		if number := own != "" && strings.Trim(own, "0123456789") == ""; number || len(own) == 5 && strings.Trim(own, made) == "" {
			name = name[:at]
		}
	}
	return namespace + "/" + name
}

// holdsBack reports whether the breaker holds back a threshold's victim. Where the first in the ranking is one that was not there when it
// stopped, nor made in the place of one that went in vain, or has grown since, it is tried once. Where pods grew more since then than all
// else, the first that has much more than then is, whoever stands before it, and is put in front: it leaks, and they do not.
func (m *Manager) holdsBack(now time.Time, w *watched, ranked []Ranked) bool {
	b := m.breakers[w.key()]
	if !m.config.Breaker || b.futile < breakerLimit {
		return false
	}
	remembers := b.known == nil || b.unread
	if remembers {
		b.remember(ranked)
	}
	if remembers || b.stopped.at.IsZero() {
		b.noteStop(w)
		m.breakers[w.key()] = b
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

// leaks: a pod that is not the first has grown since it stopped: it alone makes a difference, it may die, and it is not within its request
// where the first is not.
func (b *breaker) leaks(w *watched, c, first *Candidate) bool {
	spared := c.Keys.SetAside || c.Keys.standing() == withinRequest && first.Keys.standing() != withinRequest
	return !spared && w.grewFrom(b.known[c.Pod.PodRef.UID], c.Keys.Usage) && !b.inPlace(w, c)
}

// inside reports whether pods that may go grew by much since it stopped, and by at least half of what is left less. What is not known
// counts as outside.
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

// remember notes who could have gone, now that it has stopped. Those of which only an upper bound was read are noted in the next look, for
// which Unread has them read; if that fails they count as new.
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

// unknown is a pod to be read in full, for the breaker to remember what it uses, or to know whether it has grown; nil: none. Nothing is
// lost by that: it has stopped.
func (m *Manager) unknown(now time.Time, w *watched, may []Candidate) *stats.PodStats {
	b := m.breakers[w.key()]
	remembers := b.known == nil || b.unread
	if !m.config.Breaker || b.futile < breakerLimit || !remembers && (now.Before(b.until) || !b.inside(now, w)) {
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

// letThrough takes that an eviction begins which the breaker would have held back if its victim were not new and had not grown.
func (m *Manager) letThrough(w *watched) {
	if b := m.breakers[w.key()]; m.config.Breaker && b.futile >= breakerLimit {
		b.futile, b.known, b.unread, b.tries, b.stopped = breakerLimit-1, nil, false, min(b.tries+1, maxTries), together{}
		m.breakers[w.key()] = b
	}
}

// stoppedBecause names what grows instead.
func (m *Manager) stoppedBecause(w *watched, growing []Growth) string {
	reason := fmt.Sprintf("%d evictions did not lower the pressure on %s: stopped", m.breakers[w.key()].futile, w.Signal)
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
