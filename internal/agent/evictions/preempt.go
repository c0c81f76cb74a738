package evictions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"jettison/eviction"
	"jettison/internal/node/kill"
)

// ErrDryRun is why nobody goes for a critical pod: a dry run only says who would.
var ErrDryRun = errors.New("a dry run stops no pod")

var errUndying = errors.New("it was stopped a moment ago and does not die")

// Preempt has pods stopped that go for a critical one, each in its own grace period, all at the
// same time; reason says for whom. It is all or nothing: where one of them cannot be pinned none is
// stopped, for the others would die for nothing. Of one that is on its way out already the life
// that there is counts. lives are in the order of the victims; each ends of itself
// (eviction.Life.Room).
func (v *Evictions) Preempt(ctx context.Context, now time.Time, victims []eviction.Eviction,
	reason string) ([]*eviction.Life, error) {
	d := eviction.Decision{Time: now, Evictions: victims, Reason: reason}
	if v.o.DryRun {
		for i := range victims {
			v.wouldGo(&d, &victims[i])
		}
		return nil, ErrDryRun
	}
	lives, blows := make([]*eviction.Life, len(victims)), make([]blow, len(victims))
	for i := range victims {
		pod := &victims[i].Pod
		old := v.o.Manager.Life(pod.PodRef.UID)
		if old != nil && old.Leaving() && !old.Left() {
			lives[i] = old
			continue
		}
		err := errUndying
		if old == nil || !old.Resting(now) {
			if blows[i].victim, err = v.o.Pin(pod); err != nil {
				v.cannotGo(now, pod)
			}
		}
		if err != nil {
			closeAll(blows)
			return nil, fmt.Errorf("pod %s: %w", v.o.Pods.Name(pod.PodRef), err)
		}
		blows[i].pinned = kill.Now()
	}
	v.o.Squeeze.Stop()
	for i := range victims {
		if lives[i] != nil {
			continue
		}
		uid := victims[i].Pod.PodRef.UID
		v.o.Gate.AtOnce(blows[i].pinned.Time, uid)
		v.begun(ctx, &d, i, v.o.Manager.Life(uid), &blows[i])
		lives[i] = v.o.Manager.Life(uid)
	}
	return lives, nil
}

// Deschedule has one pod stopped that should not be there, in its own grace period.
func (v *Evictions) Deschedule(ctx context.Context, now time.Time,
	victim *eviction.Eviction) error {
	_, err := v.Preempt(ctx, now, []eviction.Eviction{*victim}, victim.Message)
	return err
}

// closeAll gives back what was pinned.
func closeAll(blows []blow) {
	for i := range blows {
		if v := blows[i].victim; v != nil {
			v.Close()
		}
	}
}

// WhyAlive is why a victim is not known to be dead; empty: it is, or nothing was wrong yet.
func (v *Evictions) WhyAlive(l *eviction.Life) string {
	if u := v.underway[l]; u != nil && u.alive != nil {
		return u.alive.Error()
	}
	return ""
}
