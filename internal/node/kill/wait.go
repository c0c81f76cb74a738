package kill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"jettison/internal/base/retry"
)

// Backoff between two rounds of a kill while processes are left.
const (
	sweepFirst = 20 * time.Millisecond
	sweepMax   = time.Second
)

// WaitEmpty blocks until the kernel reports that no process of the victim is left, except for
// monitors of the runtime. It repeats a pending kill with backoff, because a process killed in the
// middle of a fork may complete it, and a process may be moved into the cgroup. While the victim
// uses CPU time, its tasks are exiting, and WaitEmpty waits up to dyingMost times limit: hundreds
// of processes exit slowly on a small node, all at about the same time, and another victim would
// die without need. If the wait itself fails (out of descriptors), WaitEmpty records a step and
// retries. It returns os.ErrDeadlineExceeded if the cgroup is not known to be empty after that,
// and ErrNotKilled if a pending kill failed. Without a known cgroup it returns nil immediately
// although the pod may live: Clean kills it then.
func (v *Victim) WaitEmpty(ctx context.Context, limit time.Duration) error {
	if !v.Located() {
		return nil // Clean kills it
	}
	err := v.waitOutside(ctx, limit, func() error { return v.awaitEmpty(ctx, limit) })
	if err == nil {
		v.life.empty(&v.steps)
	}
	return err
}

// awaitEmpty implements WaitEmpty for the pod's cgroup.
func (v *Victim) awaitEmpty(ctx context.Context, limit time.Duration) error {
	if !v.group.known {
		return nil
	}
	deadline, end := time.Now().Add(limit), time.Now().Add(dyingMost*limit)
	exits := exits{at: time.Now()}
	for wait := sweepFirst; ; wait = retry.Backoff(wait, sweepFirst, sweepMax) {
		left := max(time.Until(deadline), 0)
		err := v.awaitGroup(ctx, min(wait, left))
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
		if now := time.Now(); exits.progress(v, now, limit/4) {
			if deadline = now.Add(limit); deadline.After(end) {
				deadline = end
			}
		}
		if !time.Now().Before(deadline) {
			return err
		}
		v.repeatKill()
	}
}

// awaitGroup waits until the cgroup has no process, except for monitors of the runtime. The kernel
// reports no event at the end of the others, so awaitGroup looks often after a kill.
func (v *Victim) awaitGroup(ctx context.Context, limit time.Duration) error {
	m := &v.file.monitors
	for end := time.Now().Add(limit); ; {
		left := max(time.Until(end), 0)
		step := left
		if m.possible && v.progress.killed.Load() {
			step = min(left, sweepFirst)
		}
		err := v.group.wait.WaitEmpty(ctx, step)
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case m.onlyMonitors(&v.group.wait):
			return nil
		case step == left || !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
	}
}

// dyingMost bounds the wait for a victim that is dying, in limits of WaitEmpty.
const dyingMost = 6

// exits compares the CPU time that a victim's tasks have used since the kill. A killed task uses CPU
// time only in the kernel, to exit; a task that waits for a device or a lock uses none.
type exits struct {
	at   time.Time   // start of the last reading
	last *cpuReading // nil: none since the kill
}

// progress starts a reading of the CPU time if the last one is older than interval, and reports
// whether the latest result differs from the one before: it is lower after the removal of a
// container. It does not wait for the result. Until the kernel has carried out the kill, tasks may
// run on, so nothing counts.
func (e *exits) progress(v *Victim, now time.Time, interval time.Duration) (grown bool) {
	struck := time.Duration(v.progress.struck.Load())
	if r := v.background.cpuTime.Load(); r != e.last && struck != 0 && r.began >= struck {
		grown = e.last != nil && r.used != e.last.used
		e.last = r
	}
	if now.Sub(e.at) >= interval {
		e.at = now
		v.inBackground(readCPUTime)
	}
	return grown
}

// repeatKill runs one more round of a kill that this process has begun. It waits for no thread and
// blocks none: neither the loop, which may have to kill another victim, nor the threads that free
// memory.
func (v *Victim) repeatKill() {
	if v.killer != nil {
		v.killer.replaceStuck()
	}
	if !v.progress.killed.Load() {
		return
	}
	if v.killer != nil && v.ladder.has(CPU) {
		v.inBackground(raisePriority)
	}
	switch {
	case v.progress.singly.Load():
		v.inBackground(repeatSingly)
	case v.killer == nil:
		var buf [killBuffer]byte
		v.rewrite(buf[:])
	default:
		v.killer.strike(strike{v: v, repeat: true})
	}
}
