package disk

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A pod is walked for a turn at most, so that one with many files holds up no other for long. A
// walk that its turn's end cut off begins anew when all other pods that are due were measured
// since, in a turn twice as long, up to longestTurn: other pods wait for one of these at a time.
// Nor does it wait until no other is due: where a round of them takes longer than their figures may
// be old, one always is.
const (
	turn        = time.Minute
	longestTurn = 10 * time.Minute
)

// hurriedTurn is the first turn while a disk is short, and turn the longest then: victims are
// chosen by the figures of all pods.
const hurriedTurn = 5 * time.Second

// turnOf is how long the next turn of a pod may take, and whether files without a name are looked
// for in it: while a disk is short, and where figures are demanded, for it was found to be.
func (l *Loop) turnOf(before *storage) (long time.Duration, short bool) {
	first, longest := turn, longestTurn
	if l.hurry {
		first, longest = hurriedTurn, turn
	}
	if before == nil {
		return first, l.hurry || !l.demanded.IsZero()
	}
	switch {
	case before.cut && before.time.Before(l.whole):
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
	long, isShort := l.turnOf(before)
	began := time.Now()
	l.doing, l.since, l.until, l.hurried = uid, began, began.Add(long), l.hurry
	l.end = time.AfterFunc(long, func() { cancel(errTurnOver) })
	l.mu.Unlock()
	seen := l.walker.seen()
	s := l.walker.measure(short, uid, dirs, pod)
	s.took, s.turn = time.Since(began), long
	if s.err != nil && context.Cause(short) == errTurnOver {
		s.cut = true
		s.err = fmt.Errorf("pod %s: more than %d entries, walked for %v: not measured to its end",
			uid, l.walker.seen()-seen, s.took.Round(time.Second))
	}
	s.keep(before)
	if before != nil { // where it is not looked for, what was found stays, as old as it is
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
	l.end.Stop()
	l.doing = ""
	if ctx.Err() == nil {
		l.pods[uid] = s
	}
}

// setHurry tells whether a disk is short. The turn under way becomes a first one of then, unless it
// began in a hurry: victims do not wait for more, and a disk that is short again after a moment is
// to cut off no walk that was given its time.
func (l *Loop) setHurry(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hurry = on; on && l.doing != "" && !l.hurried && l.until.Sub(l.since) > hurriedTurn {
		l.end.Reset(max(0, time.Until(l.since.Add(hurriedTurn))))
	}
}

// errTurnOver ends a walk at the end of its turn.
var errTurnOver = errors.New("the turn is over")

// hurriedShare of a core is what walking may take while a disk is short.
const hurriedShare = 0.2

// share of a core for walking directories.
func (l *Loop) share() float64 {
	if l.short.Load() {
		return max(l.calm, hurriedShare)
	}
	return l.calm
}

// Hurry tells whether a disk is short: then all pods are measured every few seconds, at up to a
// fifth of a core.
func (l *Loop) Hurry(on bool) {
	if l.short.Swap(on) == on {
		return
	}
	l.setHurry(on)
	l.wake()
}

// SetEager names the pods, by UID, that are measured often.
func (l *Loop) SetEager(pods map[string]bool) {
	l.mu.Lock()
	l.eager = pods
	l.mu.Unlock()
	l.wake()
}
