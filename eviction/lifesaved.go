package eviction

import (
	"fmt"
	"slices"
	"time"

	"jettison/stats"
)

// save is what is kept of evictions, and of what they have in shared memory.
func (es *evictions) save() (lives []SavedLife, shmem *SavedPool) {
	for _, l := range es.lives {
		if !l.settled || l.Phase() != Over || l.untold() {
			lives = append(lives, l.save())
		}
	}
	lives = lives[max(0, len(lives)-maxLives):]
	return lives, es.pool.save()
}

// resume takes back what was saved.
func (es *evictions) resume(now time.Time, s *Saved, drop func(string, ...any)) {
	for i := range s.Lives {
		if len(es.lives) == maxLives {
			drop("%d evictions too many", len(s.Lives)-i)
			break
		}
		l, err := es.resumeLife(now, &s.Lives[i], drop)
		if err != nil {
			drop("an eviction: %w", err)
			continue
		}
		es.lives = append(es.lives, l)
	}
	es.resumeShared(s.Shmem, drop)
}

// save is what is kept of a life.
func (l *Life) save() SavedLife {
	s := SavedLife{
		Eviction: saveEviction(&l.e), Record: l.Record, RemoveFiles: l.RemoveFiles,
		KillWaits: l.KillWaits, Level: l.level,
		Began: wallOnly(l.began), Deadline: l.deadline.Round(0),
		Killed: wallOnly(l.killed), Emptied: wallOnly(l.emptied), Clean: l.clean,
		Cleaned: wallOnly(l.cleaned),
		Shared:  l.shared, CameBack: l.back,
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

// resumeLife makes one life of what was saved of it.
func (es *evictions) resumeLife(now time.Time, s *SavedLife, say func(string, ...any)) (*Life,
	error) {
	e, err := s.Eviction.Eviction()
	if err != nil {
		return nil, err
	}
	uid := e.Pod.PodRef.UID
	if slices.ContainsFunc(es.lives, func(l *Life) bool { return l.e.Pod.PodRef.UID == uid }) {
		return nil, fmt.Errorf("pod %s comes twice", uid)
	}
	grace := e.GracePeriodSeconds
	if !e.hard && !e.Local() && !e.Planned() {
		e.GracePeriodSeconds = max(min(e.GracePeriodSeconds, es.config.MaxPodGracePeriodSeconds),
			hardGrace)
	}
	l := &Life{
		Record: s.Record, RemoveFiles: s.RemoveFiles, KillWaits: s.KillWaits, e: e,
		met: es.config.metThen(&e, s.Met), level: s.Level,
		began: s.Began, deadline: s.Deadline, killed: s.Killed, emptied: s.Emptied, clean: s.Clean,
		cleaned: s.Cleaned, shared: s.Shared,
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
		say("pod %s died at %s, which is to come: what it returns is awaited from now", uid,
			l.emptied.Time.Format(time.RFC3339))
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
		say("the grace period of pod %s ends at %s, which is too far: %d s from now", uid,
			l.deadline.Format(time.RFC3339), grace)
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

// wallOnly leaves out what only this process can compare.
func wallOnly(s Stamp) Stamp { return Stamp{Time: s.Time.Round(0), Monotonic: s.Monotonic} }

// metThen is the threshold that an eviction is for, as far as it is configured still, as it was
// when that was decided on.
func (c *Config) metThen(e *Eviction, s *SavedMet) (met Met) {
	if e.Local() {
		return met
	}
	for i := range c.Thresholds {
		if t := &c.Thresholds[i]; t.Signal == e.Signal && t.Hard() == e.Hard() {
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
