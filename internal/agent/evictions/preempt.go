package evictions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"jettison/eviction"
	"jettison/internal/node/kill"
)

// ErrDryRun reports that a dry run preempts no pod.
var ErrDryRun = errors.New("dry run: no pod is stopped")

var errUndying = errors.New("the pod survived a kill a moment ago")

// Preempt begins to stop pods for a critical one, each with its own grace period, all at the same
// time; reason names the critical pod. It stops all or none: if one of them cannot be pinned, the
// others would be stopped without effect. For a pod that is already being stopped it returns the
// existing life. The lives are in the order of the victims; each ends on its own
// (eviction.Life.RoomState).
func (v *Evictions) Preempt(ctx context.Context, now time.Time, victims []eviction.Eviction,
	reason string) ([]*eviction.Life, error) {
	d := eviction.Decision{Time: now, Evictions: victims, Reason: reason}
	if v.o.DryRun {
		for i := range victims {
			v.dryRun(&d, &victims[i])
		}
		return nil, ErrDryRun
	}
	lives, strikes := make([]*eviction.Life, len(victims)), make([]strike, len(victims))
	for i := range victims {
		pod := &victims[i].Pod
		old := v.o.Manager.Life(pod.PodRef.UID)
		if old != nil && old.CleaningUp() && !old.Terminated() {
			lives[i] = old
			continue
		}
		err := errUndying
		if old == nil || !old.RecentlyUndying(now) {
			if strikes[i].victim, err = v.o.Pin(pod); err != nil {
				v.setAside(now, pod)
			}
		}
		if err != nil {
			closeVictims(strikes)
			return nil, fmt.Errorf("pod %s: %w", v.o.Pods.Name(pod.PodRef), err)
		}
		strikes[i].pinned = kill.Now()
	}
	v.o.Squeeze.Stop()
	for i := range victims {
		if lives[i] != nil {
			continue
		}
		uid := victims[i].Pod.PodRef.UID
		v.o.Gate.StartHoldOff(strikes[i].pinned.Time, uid)
		v.register(ctx, &d, i, v.o.Manager.Life(uid), &strikes[i])
		lives[i] = v.o.Manager.Life(uid)
	}
	return lives, nil
}

// Deschedule begins to stop one pod that violates its placement, with its own grace period.
func (v *Evictions) Deschedule(ctx context.Context, now time.Time,
	victim *eviction.Eviction) error {
	_, err := v.Preempt(ctx, now, []eviction.Eviction{*victim}, victim.Message)
	return err
}

// closeVictims releases the pinned victims.
func closeVictims(strikes []strike) {
	for i := range strikes {
		if v := strikes[i].victim; v != nil {
			v.Close()
		}
	}
}

// WhyAlive returns why a victim is not known to be dead; empty if it is dead or no error occurred
// yet.
func (v *Evictions) WhyAlive(l *eviction.Life) string {
	if u := v.inProgress[l]; u != nil && u.aliveErr != nil {
		return u.aliveErr.Error()
	}
	return ""
}
