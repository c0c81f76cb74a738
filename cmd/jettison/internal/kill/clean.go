package kill

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Backoff between attempts to have the runtime clean up.
const (
	cleanFirst = 100 * time.Millisecond
	cleanMax   = 10 * time.Second
	cleanSlow  = 5 * time.Minute // after which it is said once that it is slow
)

// Clean has the runtime stop the victim's sandboxes and comes back when it calls none of their containers running. After a
// kill from outside a runtime may for a while answer that all is stopped and still call a container running (containerd
// 2.4), or be down: it is asked again, further and further apart, until it has done it or ctx ends. slow is called once if
// that takes very long.
func (v *Victim) Clean(ctx context.Context, r Runtime, slow func(error)) error {
	return again(ctx, slow, func() error {
		if err := v.cleanOnce(ctx, r); err != nil {
			return fmt.Errorf("clean up after pod %s: %w", v.Pod.UID, err)
		}
		return nil
	})
}

// Remove has the runtime delete the victim's sandboxes with their containers and writable layers; Clean has to come first.
// It is asked again as in Clean, since containerd refuses while it calls a container running. A sandbox that cannot be
// deleted keeps none of the others.
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
	for wait := cleanFirst; ; wait = min(wait*2, cleanMax) {
		err := do()
		if err == nil {
			return nil
		}
		if !said && time.Since(start) > cleanSlow {
			said = true
			slow(err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// lookUp finds the victim's sandboxes: between the ranking and the kill the runtime may have made the pod's first one, or its
// next one.
func (v *Victim) lookUp(ctx context.Context, r Runtime) error {
	now, err := r.SandboxesOf(ctx, v.Pod.UID, v.since)
	if err != nil {
		return err
	}
	for _, id := range now {
		if !slices.Contains(v.ids, id) {
			v.ids = append(v.ids, id)
		}
	}
	return nil
}

func (v *Victim) cleanOnce(ctx context.Context, r Runtime) error {
	if err := v.lookUp(ctx, r); err != nil {
		return err
	}
	for _, id := range v.ids {
		if err := r.StopPodSandbox(ctx, id); err != nil {
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
	if err := v.lookUp(ctx, r); err != nil {
		return err
	}
	var first error
	for _, id := range v.ids {
		if err := r.RemovePodSandbox(ctx, id); err != nil && first == nil {
			first = err
		}
	}
	return first
}
