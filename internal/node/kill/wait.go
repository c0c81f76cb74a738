package kill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"jettison/cgroup"
	"jettison/internal/base/retry"
)

// Times between two rounds of a kill, as long as something is left: doubled from one to the next.
const (
	sweepFirst = 20 * time.Millisecond
	sweepMax   = time.Second
)

// WaitEmpty blocks until no process of the victim is left, by the kernel's word. A kill is repeated
// meanwhile, further and further apart: a process that gets SIGKILL in the middle of a fork may
// finish it, and one may be moved in. What is wrong with the waiting itself (out of descriptors)
// does not end it: it is a step, and tried again. os.ErrDeadlineExceeded: it is not known to be
// empty in time; ErrNotKilled: a kill that was under way has failed.
func (v *Victim) WaitEmpty(ctx context.Context, limit time.Duration) error {
	if !v.group.known {
		return nil // Clean is what kills it
	}
	err := v.awaitEmpty(ctx, limit)
	if err == nil {
		v.life.empty(&v.steps)
		v.restore()
	}
	return err
}

func (v *Victim) awaitEmpty(ctx context.Context, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	var again *cgroup.ProcKiller
	for wait := sweepFirst; ; wait = retry.Backoff(wait, sweepFirst, sweepMax) {
		left := max(time.Until(deadline), 0)
		err := v.group.wait.WaitEmpty(ctx, min(wait, left))
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			v.steps.call(stepWait, err)
			err = fmt.Errorf("%w: it is not known whether pod %s is dead: %w", os.ErrDeadlineExceeded,
				v.Pod.UID, err)
			retry.Sleep(ctx, min(wait, left))
		}
		if failed := v.progress.failed(v.ladder); failed != nil && v.progress.killed.Load() {
			v.progress.retract() // so that Clean has the runtime do it
			return fmt.Errorf("kill pod %s: %w", v.Pod.UID, failed)
		}
		if left <= wait {
			return err
		}
		again = v.killAgain(again)
	}
}

// killAgain is one more round of a kill that this process has begun. It waits for no thread and
// holds up none: neither the loop, which may have the next victim to kill by now, nor the threads
// that free memory wait for a round.
func (v *Victim) killAgain(by *cgroup.ProcKiller) *cgroup.ProcKiller {
	if v.killer != nil {
		v.killer.relieve()
	}
	if !v.progress.killed.Load() {
		return by
	}
	switch {
	case v.progress.singly.Load():
		if by == nil {
			by = cgroup.NewProcKiller()
		}
		by.Unfrozen = v.progress.heldUp.Load()
		_, _ = by.Kill(&v.group.wait, v.singles.limit) // what goes wrong shows in who is left then
	case v.killer == nil:
		var buf [256]byte
		v.writeAgain(buf[:])
	default:
		v.killer.strike(strike{v: v, again: true})
	}
	return by
}
