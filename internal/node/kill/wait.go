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

// Backoff between two rounds of a kill while processes are left.
const (
	sweepFirst = 20 * time.Millisecond
	sweepMax   = time.Second
)

// WaitEmpty blocks until the kernel reports that no process of the victim is left. It repeats a
// pending kill with backoff, because a process killed in the middle of a fork may complete it, and
// a process may be moved into the cgroup. While the victim loses tasks, WaitEmpty waits up to
// dyingMost times limit: hundreds of processes exit slowly on a small node, and another victim would
// die without need. If the wait itself fails (out of descriptors), WaitEmpty
// records a step and retries. It returns os.ErrDeadlineExceeded if the cgroup is not known to be
// empty after limit, and ErrNotKilled if a pending kill failed. Without a known cgroup it returns nil
// immediately although the pod may live: Clean kills it then.
func (v *Victim) WaitEmpty(ctx context.Context, limit time.Duration) error {
	if !v.group.known {
		return nil // Clean kills it
	}
	err := v.awaitEmpty(ctx, limit)
	if err == nil {
		v.life.empty(&v.steps)
		v.restore()
	}
	return err
}

func (v *Victim) awaitEmpty(ctx context.Context, limit time.Duration) error {
	deadline, end := time.Now().Add(limit), time.Now().Add(dyingMost*limit)
	count := taskCount{at: time.Now()}
	var killer *cgroup.ProcKiller
	for wait := sweepFirst; ; wait = retry.Backoff(wait, sweepFirst, sweepMax) {
		left := max(time.Until(deadline), 0)
		err := v.group.wait.WaitEmpty(ctx, min(wait, left))
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			v.steps.call(stepWait, err)
			err = fmt.Errorf("%w: cannot determine whether pod %s is dead: %w", os.ErrDeadlineExceeded,
				v.Pod.UID, err)
			retry.Sleep(ctx, min(wait, left))
		}
		if failed := v.progress.failed(v.ladder); failed != nil && v.progress.killed.Load() {
			v.progress.retract() // so that Clean has the runtime kill the victim
			return fmt.Errorf("kill pod %s: %w", v.Pod.UID, failed)
		}
		if now := time.Now(); now.Sub(count.at) >= limit/4 && count.falls(v, now) {
			if deadline = now.Add(limit); deadline.After(end) {
				deadline = end
			}
		}
		if !time.Now().Before(deadline) {
			return err
		}
		killer = v.repeatKill(killer)
	}
}

// dyingMost bounds the wait for a victim that loses tasks, in limits of WaitEmpty.
const dyingMost = 6

// taskCount is the last count of a victim's tasks.
type taskCount struct {
	at    time.Time
	tasks uint64
	known bool
}

// falls counts the tasks and reports whether there are fewer than at the count before. The first
// count is made after a quarter of the limit, because opening the file may wait for a lock of the kernel.
func (c *taskCount) falls(v *Victim, now time.Time) bool {
	var buf [32]byte
	tasks, err := v.group.wait.PIDsCurrent(buf[:])
	if err != nil {
		return false
	}
	fewer := c.known && tasks < c.tasks
	*c = taskCount{now, tasks, true}
	return fewer
}

// repeatKill runs one more round of a kill that this process has begun. It waits for no thread and
// blocks none: neither the loop, which may have to kill another victim, nor the threads that free
// memory. It returns by, or the ProcKiller that it had to create.
func (v *Victim) repeatKill(by *cgroup.ProcKiller) *cgroup.ProcKiller {
	if v.killer != nil {
		v.killer.replaceStuck()
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
		_, _ = by.Kill(&v.group.wait, v.singles.limit) // an error shows as remaining processes
	case v.killer == nil:
		var buf [256]byte
		v.rewrite(buf[:])
	default:
		v.killer.strike(strike{v: v, repeat: true})
	}
	return by
}
