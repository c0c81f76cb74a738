package eviction

import (
	"fmt"
	"slices"
	"time"

	"jettison/stats"
)

// save returns the evictions to save, and the state of shared memory.
func (es *evictions) save() (lives []SavedLife, shmem *SavedPool) {
	for _, l := range es.lives {
		if !l.settled || l.Phase() != Over || l.unacknowledged() {
			lives = append(lives, l.save())
		}
	}
	lives = lives[max(0, len(lives)-maxLives):]
	return lives, es.pool.save()
}

// resume restores the evictions from s and reports each one that it drops.
func (es *evictions) resume(now time.Time, s *Saved, drop func(string, ...any)) {
	for i := range s.Lives {
		if len(es.lives) == maxLives {
			drop("%d evictions beyond the limit", len(s.Lives)-i)
			break
		}
		l, err := es.resumeLife(now, &s.Lives[i], drop)
		if err != nil {
			drop("eviction: %w", err)
			continue
		}
		es.lives = append(es.lives, l)
	}
	es.resumeShmem(s.Shmem, drop)
}

// save returns the saved form of l.
func (l *Life) save() SavedLife {
	s := SavedLife{
		Eviction: saveEviction(&l.e), Record: l.Record, RemoveFiles: l.RemoveFiles,
		KillWaits: l.KillPending, Level: l.level,
		Began: wallOnly(l.began), Deadline: l.deadline.Round(0),
		Killed: wallOnly(l.killed), Emptied: wallOnly(l.emptied), Clean: l.cleanedUp,
		Cleaned: wallOnly(l.cleaned),
		Shared:  l.hasShmem, CameBack: l.recreated,
		Undying: l.undying, Gone: l.abandoned, Settled: l.settled, Outcome: l.outcome.String(),
	}
	s.Awaited, s.Due, s.Holds = l.awaited.save()
	s.Shmem, s.PodTotals = l.shmem.save(), l.podTotals.save()
	s.Unacknowledged = l.outcome != OutcomeUnknown && !l.outcomeAcked
	if o := &l.met.Observed; o.OK || !l.met.Since.IsZero() {
		s.Met = &SavedMet{Since: l.met.Since.Round(0)}
		if o.OK {
			s.Met.Time, s.Met.Value, s.Met.Capacity = o.Time.Round(0), o.Value, o.Capacity
		}
	}
	return s
}

// resumeLife restores one eviction from its saved form.
func (es *evictions) resumeLife(now time.Time, s *SavedLife, report func(string, ...any)) (*Life,
	error) {
	e, err := s.Eviction.Eviction()
	if err != nil {
		return nil, err
	}
	uid := e.Pod.PodRef.UID
	if slices.ContainsFunc(es.lives, func(l *Life) bool { return l.e.Pod.PodRef.UID == uid }) {
		return nil, fmt.Errorf("pod %s occurs twice", uid)
	}
	grace := e.GracePeriodSeconds
	if !e.hard && !e.Local() && !e.Planned() {
		e.GracePeriodSeconds = max(min(e.GracePeriodSeconds, es.config.MaxPodGracePeriodSeconds),
			hardGrace)
	}
	l := &Life{
		Record: s.Record, RemoveFiles: s.RemoveFiles, KillPending: s.KillWaits, e: e,
		met: es.config.metThen(&e, s.Met), level: s.Level,
		began: s.Began, deadline: s.Deadline, killed: s.Killed, emptied: s.Emptied, cleanedUp: s.Clean,
		cleaned: s.Cleaned, hasShmem: s.Shared,
		recreated: s.CameBack, abandoned: s.Gone, resumed: true,
	}
	l.expectReturned()
	l.awaited.resume(s, report)
	l.shmem.resume(s.Shmem, report)
	l.podTotals.resume(s.PodTotals, report)
	if l.level > implausible { // 0: nothing was available, so no later value is worse
		report("eviction of pod %s: implausible number", uid)
		l.level = 0
	}
	if l.emptied.Time.After(now) {
		report("pod %s died at %s, which is in the future: its returns are expected from now on", uid,
			l.emptied.Time.Format(time.RFC3339))
	}
	// If the clock was set back, times in the future would make every reading look old.
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
	if latest := now.Add(time.Duration(grace) * time.Second); l.deadline.After(latest) {
		report("grace period of pod %s ends at %s, which is too far ahead: shortened to %d s from now",
			uid, l.deadline.Format(time.RFC3339), grace)
		l.deadline = latest
	}
	l.undying = s.Undying && !l.Dead()
	l.settled = l.undying || s.Settled && l.terminated()
	if at := slices.Index(outcomeWords[:], s.Outcome); at > 0 && (l.undying || l.terminated()) {
		l.outcome, l.outcomeAcked = Outcome(at), !s.Unacknowledged
	}
	l.endAcked = l.Phase() == Over && l.outcomeAcked
	return l, nil
}

// wallOnly drops Go's monotonic clock reading, which is meaningless to another process.
func wallOnly(s Stamp) Stamp { return Stamp{Time: s.Time.Round(0), Monotonic: s.Monotonic} }

// metThen returns the threshold that an eviction is for, with the values at the decision. Threshold
// is zero if the configuration no longer contains it.
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
