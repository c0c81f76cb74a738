package eviction

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"jettison/stats"
)

// Save is what Resume needs. It shares nothing with the manager.
func (m *Manager) Save() Saved {
	var s Saved
	for _, l := range m.lives {
		if !l.settled || l.Phase() != Over || l.untold() {
			s.Lives = append(s.Lives, l.save())
		}
	}
	s.Lives = s.Lives[max(0, len(s.Lives)-maxLives):]
	for uid, a := range m.aside {
		s.Aside = append(s.Aside, SavedAside{UID: uid, Until: a.until.Round(0), Times: a.times()})
	}
	slices.SortFunc(s.Aside, func(x, y SavedAside) int { return cmp.Or(y.Until.Compare(x.Until), cmp.Compare(x.UID, y.UID)) })
	s.Aside = s.Aside[:min(len(s.Aside), maxRemembered)]
	for uid, e := range m.evicted {
		s.Evicted = append(s.Evicted, SavedEvicted{UID: uid, Times: e.times, Last: e.last.Round(0)})
	}
	slices.SortFunc(s.Evicted, func(x, y SavedEvicted) int { return cmp.Or(y.Last.Compare(x.Last), cmp.Compare(x.UID, y.UID)) })
	s.Evicted = s.Evicted[:min(len(s.Evicted), maxRemembered)]
	for key, b := range m.breakers {
		s.Breaker = append(s.Breaker, SavedBreaker{
			Signal: key.signal, Hard: key.hard, Futile: b.futile, Known: maps.Clone(b.known), Unread: b.unread,
			Vain: maps.Clone(b.vain), Tries: b.tries, Until: b.until.Round(0), Stopped: b.stopped.save(),
		})
	}
	slices.SortFunc(s.Breaker, func(x, y SavedBreaker) int {
		return cmp.Or(cmp.Compare(x.Signal, y.Signal), compareBool(x.Hard, y.Hard))
	})
	s.Disks, s.Shmem = m.explain.save(), m.pool.save()
	m.explain.unsaved = false
	return s
}

// Unsaved reports whether something that no eviction has changed is to be saved.
func (m *Manager) Unsaved() bool { return m.explain.unsaved }

// save is what is kept of disks. Of too many pods on one those are left out that hold the least.
func (e *explaining) save() (out []SavedDisk) {
	for signal := range signals {
		q, known := e.quiet[signal]
		d, doubted := e.doubts[signal]
		if !known || !signals[signal].kind.disk() {
			continue
		}
		s := SavedDisk{Signal: signal, Quiet: q.at.Round(0), Used: q.used, Pods: maps.Clone(q.pods)}
		s.Unmeasured = slices.Sorted(maps.Keys(q.unmeasured))
		s.Unmeasured = s.Unmeasured[:min(len(s.Unmeasured), maxRemembered)]
		if len(s.Pods) > maxRemembered {
			uids := slices.SortedFunc(maps.Keys(q.pods), func(x, y string) int {
				return cmp.Or(cmp.Compare(q.pods[y], q.pods[x]), cmp.Compare(x, y))
			})
			for _, uid := range uids[maxRemembered:] {
				delete(s.Pods, uid)
			}
		}
		if doubted {
			s.Doubt, s.Ended = d.since.Round(0), d.ended.Round(0)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(x, y SavedDisk) int { return cmp.Compare(x.Signal, y.Signal) })
	return out
}

// times is how often in a row a pod was set aside, as far as it counts.
func (a setAside) times() int {
	n := 1
	for d := setAsideFirst; d < a.next && n < maxSetAsides; d = min(2*d, setAsideMax) {
		n++
	}
	return n
}

// Resume takes back what a manager before this one has saved. The manager must not have seen anything yet. What cannot be true is
// dropped or put right, each with one error that says why; nothing waits longer for it than for an eviction that began now. What is
// left to be carried out of each of Lives has to be taken up, or Gone reported, for others wait for it.
func (m *Manager) Resume(now time.Time, s Saved) (dropped []error) {
	drop := func(format string, args ...any) { dropped = append(dropped, fmt.Errorf(format, args...)) }
	for i := range s.Lives {
		if len(m.lives) == maxLives {
			drop("%d evictions too many", len(s.Lives)-i)
			break
		}
		l, err := m.resume(now, &s.Lives[i], drop)
		if err != nil {
			drop("an eviction: %w", err)
			continue
		}
		m.lives = append(m.lives, l)
	}
	m.resumeShared(s.Shmem, drop)
	m.resumeAside(now, s.Aside, drop)
	m.resumeEvicted(now, s.Evicted, drop)
	m.resumeBreaker(now, &s, drop)
	m.resumeDisks(now, s.Disks, drop)
	return dropped
}

// resumeBreaker takes back what the breaker counted. An agent before this one counted by what was short, for hard and soft alike.
func (m *Manager) resumeBreaker(now time.Time, s *Saved, drop func(string, ...any)) {
	for _, name := range slices.Sorted(maps.Keys(s.Futile)) {
		k := slices.Index(kindNames[:], name)
		if k < 0 || s.Futile[name] < 0 {
			drop("what the breaker counted: %d of %.64q", s.Futile[name], name)
			continue
		}
		for i := range m.watched {
			if w := &m.watched[i]; int(w.info.kind) == k && s.Futile[name] > 0 {
				m.breakers[w.key()] = breaker{futile: min(s.Futile[name], breakerLimit)}
			}
		}
	}
	for _, b := range s.Breaker[:min(len(s.Breaker), 2*signalCount)] {
		_, known := signals[b.Signal]
		if !known || b.Futile < 0 || b.Tries < 0 || max(len(b.Known), len(b.Vain)) > maxRemembered {
			drop("what the breaker counted: %d of %.64q, %d pods", b.Futile, string(b.Signal), len(b.Known))
			continue
		}
		tries := min(b.Tries, maxTries)
		until := onClock(now, b.Until)
		if most := now.Add(tryAfter(tries)); until.After(most) {
			drop("the breaker waits until %s for %s, which is too far", b.Until.Format(time.RFC3339), b.Signal)
			until = most
		}
		if b.Futile > 0 {
			back := breaker{
				futile: min(b.Futile, breakerLimit), known: maps.Clone(b.Known), unread: b.Unread, vain: maps.Clone(b.Vain), tries: tries, until: until,
			}
			back.stopped.resume(b.Stopped, drop)
			m.breakers[breakerKey{b.Signal, b.Hard}] = back
		}
	}
}

// resumeDisks takes back what shortages of disks are held against.
func (m *Manager) resumeDisks(now time.Time, saved []SavedDisk, drop func(string, ...any)) {
	if !m.config.Explain {
		return
	}
	e := &m.explain
	e.quiet, e.doubts = map[stats.Signal]quiet{}, map[stats.Signal]doubt{}
	for i := range saved[:min(len(saved), signalCount)] {
		s := &saved[i]
		info, known := signals[s.Signal]
		if !known || !info.kind.disk() || s.Quiet.IsZero() || s.Used > implausible || max(len(s.Pods), len(s.Unmeasured)) > maxRemembered {
			drop("a disk that was quiet: %.64q, %d used, %d pods", string(s.Signal), s.Used, len(s.Pods)+len(s.Unmeasured))
			continue
		}
		q := quiet{at: onClock(now, earlier(s.Quiet, now)), used: s.Used, again: quietAgain} // what was missing is not kept
		if len(s.Pods) > 0 {
			q.pods = make(map[string]uint64, len(s.Pods))
		}
		for uid, held := range s.Pods {
			if checkWord("a UID", uid) == nil && held <= implausible {
				q.pods[uid] = held
			}
		}
		wrong := len(s.Pods) - len(q.pods)
		for _, uid := range s.Unmeasured {
			if checkWord("a UID", uid) != nil {
				wrong++
				continue
			}
			if q.unmeasured == nil {
				q.unmeasured = map[string]bool{}
			}
			q.unmeasured[uid] = true
		}
		if wrong > 0 {
			drop("what pods held of a disk by %s: %d of %d cannot be true", s.Signal, wrong, len(s.Pods)+len(s.Unmeasured))
		}
		if e.quiet[s.Signal] = q; !s.Doubt.IsZero() {
			e.doubts[s.Signal] = doubt{since: onClock(now, earlier(s.Doubt, now)), ended: onClock(now, earlier(s.Ended, now))}
		}
	}
}

// earlier is the earlier of two times: a clock that was set back must not make one wait.
func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}

func (m *Manager) resumeAside(now time.Time, saved []SavedAside, drop func(string, ...any)) {
	for i, a := range saved {
		if len(m.aside) == maxRemembered {
			drop("%d pods set aside too many", len(saved)-i)
			return
		}
		if err := checkWord("a UID", a.UID); err != nil || a.Times < 1 {
			drop("a pod set aside: %w", cmp.Or(err, fmt.Errorf("%d times", a.Times)))
			continue
		}
		back := setAside{until: onClock(now, a.Until), next: setAsideFirst}
		for range min(a.Times, maxSetAsides) - 1 {
			back.next = min(2*back.next, setAsideMax)
		}
		if back.until.After(now.Add(back.next)) {
			drop("pod %s is set aside until %s, which is too far: for %v from now", a.UID, a.Until.Format(time.RFC3339), back.next)
			back.until = now.Add(back.next)
		}
		m.aside[a.UID] = back
	}
}

func (m *Manager) resumeEvicted(now time.Time, saved []SavedEvicted, drop func(string, ...any)) {
	for i, e := range saved {
		if len(m.evicted) == maxRemembered {
			drop("%d evicted pods too many", len(saved)-i)
			return
		}
		if err := checkWord("a UID", e.UID); err != nil || e.Times < 1 {
			drop("an evicted pod: %w", cmp.Or(err, fmt.Errorf("%d times", e.Times)))
			continue
		}
		if e.Last.After(now) {
			e.Last = now
		}
		m.evicted[e.UID] = evicted{times: min(e.Times, maxTimes), last: onClock(now, e.Last)}
	}
}

// save is what is kept of a life.
func (l *Life) save() SavedLife {
	s := SavedLife{
		Eviction: saveEviction(&l.e), Record: l.Record, RemoveFiles: l.RemoveFiles, KillWaits: l.KillWaits, Level: l.level,
		Began: wallOnly(l.began), Deadline: l.deadline.Round(0),
		Killed: wallOnly(l.killed), Emptied: wallOnly(l.emptied), Clean: l.clean, Cleaned: wallOnly(l.cleaned),
		Shared: l.shared, CameBack: l.back,
		Undying: l.undying, Gone: l.gone, Settled: l.settled, Outcome: l.outcome.String(),
	}
	s.Awaited, s.Due, s.Holds = l.awaited.save()
	s.Shmem, s.Together = l.shmem.save(), l.together.save()
	s.Untold = l.outcome != OutcomeUnknown && !l.told
	if o := &l.met.Observed; o.OK || !l.met.Since.IsZero() {
		s.Met = &SavedMet{Since: l.met.Since.Round(0)}
		if o.OK {
			s.Met.Time, s.Met.Value, s.Met.Capacity = o.Time.Round(0), o.Value, o.Capacity
		}
	}
	return s
}

// resume makes one life of what was saved of it.
func (m *Manager) resume(now time.Time, s *SavedLife, say func(string, ...any)) (*Life, error) {
	e, err := s.Eviction.Eviction()
	if err != nil {
		return nil, err
	}
	uid := e.Pod.PodRef.UID
	if slices.ContainsFunc(m.lives, func(l *Life) bool { return l.e.Pod.PodRef.UID == uid }) {
		return nil, fmt.Errorf("pod %s comes twice", uid)
	}
	grace := e.GracePeriodSeconds
	if !e.hard && !e.Local() && !e.Planned() {
		e.GracePeriodSeconds = max(min(e.GracePeriodSeconds, m.config.MaxPodGracePeriodSeconds), hardGrace)
	}
	l := &Life{
		Record: s.Record, RemoveFiles: s.RemoveFiles, KillWaits: s.KillWaits, e: e, met: m.metThen(&e, s.Met), level: s.Level,
		began: s.Began, deadline: s.Deadline, killed: s.Killed, emptied: s.Emptied, clean: s.Clean, cleaned: s.Cleaned, shared: s.Shared,
		back: s.CameBack, gone: s.Gone, resumed: true,
	}
	l.expect()
	l.awaited.resume(s, say)
	l.shmem.resume(s.Shmem, say)
	l.together.resume(s.Together, say)
	if l.level > implausible { // as if nothing had been left: so nothing is worse than that
		say("the eviction of pod %s: a number that cannot be true", uid)
		l.level = 0
	}
	if l.emptied.Time.After(now) {
		say("pod %s died at %s, which is to come: what it returns is awaited from now", uid, l.emptied.Time.Format(time.RFC3339))
	}
	// A clock that was set back: no reading would ever be newer.
	for _, at := range []*Stamp{&l.began, &l.killed, &l.emptied, &l.cleaned} {
		if at.Monotonic = max(at.Monotonic, 0); at.Time.After(now) {
			at.Time = now
		}
		at.Time = onClock(now, at.Time)
	}
	l.deadline = onClock(now, l.deadline)
	if l.began.Time.IsZero() {
		l.began.Time = now
	}
	if most := now.Add(time.Duration(grace) * time.Second); l.deadline.After(most) {
		say("the grace period of pod %s ends at %s, which is too far: %d s from now", uid, l.deadline.Format(time.RFC3339), grace)
		l.deadline = most
	}
	l.undying = s.Undying && !l.Dead()
	l.settled = l.undying || s.Settled && l.departed()
	if at := slices.Index(outcomeWords[:], s.Outcome); at > 0 && (l.undying || l.departed()) {
		l.outcome, l.told = Outcome(at), !s.Untold
	}
	l.ended = l.Phase() == Over && l.told
	return l, nil
}

// onClock is an instant that was saved, on the clock of now: with a monotonic reading if that has one, so that the wall clock may be set
// from then on.
func onClock(now, at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return now.Add(at.Sub(now))
}

// wallOnly leaves out what only this process can compare.
func wallOnly(s Stamp) Stamp { return Stamp{Time: s.Time.Round(0), Monotonic: s.Monotonic} }

// metThen is the threshold that an eviction is for, as far as it is configured still, as it was when that was decided on.
func (m *Manager) metThen(e *Eviction, s *SavedMet) (met Met) {
	if e.Local() {
		return met
	}
	for i := range m.config.Thresholds {
		if t := &m.config.Thresholds[i]; t.Signal == e.Signal && t.Hard() == e.Hard() {
			met.Threshold = *t
			break
		}
	}
	if s == nil {
		return met
	}
	met.Since = s.Since
	if s.Capacity > 0 {
		met.Observed = stats.Observation{Value: s.Value, Capacity: s.Capacity, Time: s.Time, OK: true}
		met.Limit = met.Threshold.Value.Of(s.Capacity)
		if met.Threshold.Window > 0 {
			met.Observed.Direction = stats.Rising
		}
	}
	return met
}
