package disk

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A turn bounds the walk of a pod, so that a pod with many files does not delay the others for
// long. A walk that was cut off is repeated in a turn twice as long, up to longestTurn, after all
// pods that were due at that time. The other pods therefore wait for one such walk at a time. The
// repetition does not wait until no pod is due: if a round takes longer than the maximum age of
// measurements, some pod always is due.
const (
	turn        = time.Minute
	longestTurn = 10 * time.Minute
)

// hurriedTurn is the first turn while a disk is short. The longest turn is then turn, because the
// choice of a victim needs measurements of all pods.
const hurriedTurn = 5 * time.Second

// onceTurn is the first turn if every pod is measured once: the caller waits for some seconds only.
const onceTurn = 250 * time.Millisecond

// nextTurn returns the limit of a pod's next turn, and whether the turn includes a search for files
// without a name. It does while a disk is short, and for demanded measurements, because a demand
// follows a short disk.
func (l *Loop) nextTurn(before *storage) (long time.Duration, short bool) {
	first, longest := turn, longestTurn
	switch {
	case l.oneRound:
		first = onceTurn
	case l.hurry:
		first, longest = hurriedTurn, turn
	}
	if before == nil {
		return first, l.hurry || !l.demanded.IsZero()
	}
	switch {
	case before.cut && before.time.Before(l.finishSince):
		first = longest
	case before.cut:
		first = min(2*before.turn, longest)
	}
	return first, l.hurry || before.time.Before(l.demanded)
}

func (l *Loop) measure(ctx context.Context, uid string, dirs storageDirs) {
	short, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.mu.Lock()
	pod, before := l.index[uid], l.pods[uid]
	long, isShort := l.nextTurn(before)
	began := time.Now()
	l.walking, l.walkStart, l.turnEnd, l.startedInHurry = uid, began, began.Add(long), l.hurry
	l.turnTimer = time.AfterFunc(long, func() { cancel(errTurnOver) })
	l.walker.fresh, l.walker.rooted, l.walker.lastDirs = l.freshSince(uid, before, began), l.rooted, nil
	if before != nil {
		l.walker.lastDirs = before.dirs
	}
	l.mu.Unlock()
	seen := l.walker.entriesSeen()
	s := l.walker.measure(short, uid, dirs, pod)
	s.took, s.turn = time.Since(began), long
	if s.err != nil && context.Cause(short) == errTurnOver {
		s.cut = true
		s.err = fmt.Errorf("pod %s: walk cut off after %d entries and %v: disk usage is a lower bound",
			uid, l.walker.entriesSeen()-seen, s.took.Round(time.Second))
	}
	s.keep(before)
	if before != nil { // without a new search, keep the last result with its time
		s.unnamed = before.unnamed
	}
	if f := l.walker.unnamed; f != nil && isShort {
		last, cgroup := s.unnamed, ""
		if pod != nil {
			cgroup = pod.Cgroup
		}
		s.unnamed = f.Look(ctx, uid, cgroup, s.projects, &last)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turnTimer.Stop()
	l.walking = ""
	if ctx.Err() == nil {
		l.pods[uid] = s
	}
}

// setHurry sets whether a disk is short. It shortens the turn in progress to hurriedTurn, so that
// the choice of a victim does not wait for it. A turn that started in a hurry keeps its length: a
// disk that alternates between short and not short must not cut off every walk.
func (l *Loop) setHurry(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hurry = on; on && l.walking != "" && !l.startedInHurry && l.turnEnd.Sub(l.walkStart) > hurriedTurn {
		l.turnTimer.Reset(max(0, time.Until(l.walkStart.Add(hurriedTurn))))
	}
}

// errTurnOver is the cause of a walk cut off at the end of its turn.
var errTurnOver = errors.New("the turn has ended")

// hurriedShare is the share of a core for walking while a disk is short.
const hurriedShare = 0.2

// share returns the current share of a core for walking directories.
func (l *Loop) share() float64 {
	if l.short.Load() {
		return max(l.restShare, hurriedShare)
	}
	return l.restShare
}

// Hurry sets whether a disk is short. While a disk is short, all pods are measured every few
// seconds, at up to a fifth of a core.
func (l *Loop) Hurry(on bool) {
	if l.short.Swap(on) == on {
		return
	}
	l.setHurry(on)
	l.wake()
}

// SetEager sets the pods, by UID, that are measured every eagerEvery.
func (l *Loop) SetEager(pods map[string]bool) {
	l.mu.Lock()
	l.eager = pods
	l.mu.Unlock()
	l.wake()
}
