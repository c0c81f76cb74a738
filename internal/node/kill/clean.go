package kill

import (
	"context"
	"fmt"
	"sync"
	"time"

	"jettison/internal/base/retry"
)

// Backoff between cleanup attempts.
const (
	cleanFirst = 100 * time.Millisecond
	cleanMax   = 10 * time.Second
	cleanSlow  = 5 * time.Minute // after this time slow is called, once
)

// Clean has the runtime stop the victim's sandboxes and returns when the runtime reports none of
// their containers running. After a kill from outside, a runtime may report success while it still
// lists a running container (containerd 2.4), or be unavailable. Clean retries with backoff until
// the cleanup succeeds or ctx ends. It calls slow once, with the last error, after 5 minutes.
//
// If the kernel did not kill the victim, Clean does, unless the ladder lacks ByRuntime: then it fails
// immediately. It stops the containers in parallel without a grace period, because runtimes stop the
// containers of a sandbox one after another (containerd) or gracefully (CRI-O).
func (v *Victim) Clean(ctx context.Context, r Runtime, slow func(error)) error {
	if !v.Killed() {
		if v.ladder != 0 && !v.ladder.has(ByRuntime) && v.WaitEmpty(ctx, 0) != nil {
			return fmt.Errorf("clean up after pod %s: the pod is alive and the configured kill steps (%s) "+
				"exclude the runtime", v.Pod.UID, v.ladder)
		}
		v.stopNow(ctx, r)
	}
	return retryUntilDone(ctx, slow, func() error {
		if err := v.cleanOnce(ctx, r); err != nil {
			return fmt.Errorf("clean up after pod %s: %w", v.Pod.UID, err)
		}
		return nil
	})
}

// Remove has the runtime delete the victim's sandboxes with their containers and writable layers.
// Call Clean first. Remove retries as Clean does, because containerd refuses while it lists a
// running container. A sandbox that cannot be deleted does not block the others.
func (v *Victim) Remove(ctx context.Context, r Runtime) error {
	return retryUntilDone(ctx, func(error) {}, func() error {
		if err := v.removeOnce(ctx, r); err != nil {
			return fmt.Errorf("remove leftovers of pod %s: %w", v.Pod.UID, err)
		}
		return nil
	})
}

// retryUntilDone calls do with backoff until it succeeds or ctx ends, and returns its last error.
// After cleanSlow it calls slow, once.
func retryUntilDone(ctx context.Context, slow func(error), do func() error) error {
	start, reported := time.Now(), false
	for wait := time.Duration(0); ; {
		err := do()
		if err == nil {
			return nil
		}
		if !reported && time.Since(start) > cleanSlow {
			reported = true
			slow(err)
		}
		wait = retry.Backoff(wait, cleanFirst, cleanMax)
		if !retry.Sleep(ctx, wait) {
			return err
		}
	}
}

// stopNow has the runtime kill the containers of the victim. Errors are ignored, because the
// cleanup that follows reports them.
func (v *Victim) stopNow(ctx context.Context, r Runtime) {
	ctx, cancel := context.WithTimeout(ctx, stopBound)
	defer cancel()
	_ = v.sandboxes.lookUp(ctx, r, v.Pod.UID) // known sandboxes are stopped despite an error
	var calls sync.WaitGroup
	defer calls.Wait()
	n := 0
	for _, sandbox := range v.sandboxes.ids {
		containers, _ := r.ContainersOf(ctx, sandbox)
		for _, c := range containers {
			if n++; n > stopMax {
				return // StopPodSandbox stops the remaining ones
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
			return fmt.Errorf("the runtime still reports %d running containers in sandbox %s", n, id)
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
