package kill

import (
	"context"
	"fmt"
	"sync"
	"time"

	"jettison/internal/base/retry"
)

// Backoff between attempts to have the runtime clean up.
const (
	cleanFirst = 100 * time.Millisecond
	cleanMax   = 10 * time.Second
	cleanSlow  = 5 * time.Minute // after which it is said once that it is slow
)

// Clean has the runtime stop the victim's sandboxes and comes back when it calls none of their
// containers running. After a kill from outside a runtime may for a while answer that all is
// stopped and still call a container running (containerd 2.4), or be down: it is asked again,
// further and further apart, until it has done it or ctx ends. slow is called once if that takes
// very long.
//
// Where the kernel did not kill the victim, this does: its containers are stopped without a grace
// period, all at once, for runtimes stop those of a sandbox one after the other (containerd), or
// gently (CRI-O).
func (v *Victim) Clean(ctx context.Context, r Runtime, slow func(error)) error {
	if !v.Killed() {
		if v.ladder != 0 && !v.ladder.has(ByRuntime) && v.WaitEmpty(ctx, 0) != nil {
			return fmt.Errorf("clean up after pod %s: it lives, and the runtime may not kill it (rungs: %s)",
				v.Pod.UID, v.ladder)
		}
		v.stopNow(ctx, r)
	}
	return again(ctx, slow, func() error {
		if err := v.cleanOnce(ctx, r); err != nil {
			return fmt.Errorf("clean up after pod %s: %w", v.Pod.UID, err)
		}
		return nil
	})
}

// Remove has the runtime delete the victim's sandboxes with their containers and writable layers;
// Clean has to come first. It is asked again as in Clean, since containerd refuses while it calls a
// container running. A sandbox that cannot be deleted keeps none of the others.
func (v *Victim) Remove(ctx context.Context, r Runtime) error {
	return again(ctx, func(error) {}, func() error {
		if err := v.removeOnce(ctx, r); err != nil {
			return fmt.Errorf("remove what pod %s left: %w", v.Pod.UID, err)
		}
		return nil
	})
}

// again calls do until it has no error or ctx ends, and returns its last error.
func again(ctx context.Context, slow func(error), do func() error) error {
	start, said := time.Now(), false
	for wait := time.Duration(0); ; {
		err := do()
		if err == nil {
			return nil
		}
		if !said && time.Since(start) > cleanSlow {
			said = true
			slow(err)
		}
		wait = retry.Backoff(wait, cleanFirst, cleanMax)
		if !retry.Sleep(ctx, wait) {
			return err
		}
	}
}

// stopNow has the runtime kill the containers of the victim that it knows of. What is wrong with
// that shows in what follows.
func (v *Victim) stopNow(ctx context.Context, r Runtime) {
	ctx, cancel := context.WithTimeout(ctx, stopBound)
	defer cancel()
	_ = v.sandboxes.lookUp(ctx, r, v.Pod.UID) // the sandboxes that are known are stopped all the same
	var calls sync.WaitGroup
	defer calls.Wait()
	n := 0
	for _, sandbox := range v.sandboxes.ids {
		containers, _ := r.ContainersOf(ctx, sandbox)
		for _, c := range containers {
			if n++; n > stopMax {
				return // StopPodSandbox is for them
			}
			calls.Go(func() { v.steps.call(stepContainer, r.StopContainer(ctx, c.ID, 0)) })
		}
	}
}

func (v *Victim) cleanOnce(ctx context.Context, r Runtime) error {
	if err := v.sandboxes.lookUp(ctx, r, v.Pod.UID); err != nil {
		return err
	}
	for _, id := range v.sandboxes.ids {
		err := r.StopPodSandbox(ctx, id)
		v.steps.call(stepStop, err)
		if err != nil {
			return err
		}
		n, err := r.Running(ctx, id)
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("the runtime still calls %d containers of sandbox %s running", n, id)
		}
	}
	return nil
}

func (v *Victim) removeOnce(ctx context.Context, r Runtime) error {
	if err := v.sandboxes.lookUp(ctx, r, v.Pod.UID); err != nil {
		return err
	}
	var first error
	for _, id := range v.sandboxes.ids {
		err := r.RemovePodSandbox(ctx, id)
		v.steps.call(stepRemove, err)
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}
