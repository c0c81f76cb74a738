// Package kill is the kill ladder: it pins a victim, kills it through the kernel, waits until the kernel says that it is
// gone, and has the runtime clean up after it.
package kill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

// Runtime is what the ladder needs of a container runtime (*cri.Client).
type Runtime interface {
	StopPodSandbox(ctx context.Context, id string) error
	Running(ctx context.Context, sandboxID string) (int, error)
	SandboxesOf(ctx context.Context, uid string, before time.Time) ([]string, error)
}

// Victim is a pinned pod: the very cgroup and the very sandboxes that were ranked. A pod that comes back under the same UID
// is another Victim.
type Victim struct {
	Pod   stats.PodReference
	group *cgroup.Group // nil: none was found, only the runtime can kill it
	ids   []string
	since time.Time // when it was pinned: sandboxes made later are not its own
}

// Pin opens the victim's cgroup. Close the victim.
func Pin(fs *cgroup.FS, pod *stats.PodStats) (*Victim, error) {
	v := &Victim{Pod: pod.PodRef, ids: slices.Clone(pod.SandboxIDs), since: time.Now()}
	if pod.Cgroup == "" {
		if len(v.ids) == 0 {
			return nil, fmt.Errorf("pin pod %s: neither a cgroup nor a sandbox of it is known", pod.PodRef.UID)
		}
		return v, nil
	}
	var err error
	if v.group, err = fs.Group(pod.Cgroup); err != nil {
		return nil, fmt.Errorf("pin pod %s: %w", pod.PodRef.UID, err)
	}
	if v.group.ID() != pod.CgroupID && pod.CgroupID != (cgroup.ID{}) {
		v.group.Close()
		return nil, fmt.Errorf("pin pod %s: cgroup /%s is another one now", pod.PodRef.UID, pod.Cgroup)
	}
	return v, nil
}

// Close gives the descriptors back.
func (v *Victim) Close() {
	if v.group != nil {
		v.group.Close()
	}
}

// Stamp is an instant on both clocks that a post-mortem may have.
type Stamp struct {
	Time      time.Time
	Monotonic time.Duration // CLOCK_MONOTONIC, which the kernel log's time stamps follow
}

// Now reads both clocks.
func Now() Stamp {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return Stamp{Time: time.Now(), Monotonic: time.Duration(ts.Nano())}
}

// Kill sends SIGKILL to every process of the victim and returns at once: cgroup.kill, where the kernel has it. A victim
// that is gone already is no error. An error means that nothing was killed; Clean then has the runtime do it.
func (v *Victim) Kill() error {
	if v.group == nil {
		return errors.New("no cgroup of the pod is known")
	}
	if err := v.group.Kill(); err != nil && !errors.Is(err, cgroup.ErrVanished) {
		return err
	}
	return nil
}

// WaitEmpty blocks until no process of the victim is left, by the kernel's word.
func (v *Victim) WaitEmpty(ctx context.Context, limit time.Duration) error {
	if v.group == nil {
		return nil // Clean is what kills it
	}
	return v.group.WaitEmpty(ctx, limit)
}

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
	start, said := time.Now(), false
	for wait := cleanFirst; ; wait = min(wait*2, cleanMax) {
		err := v.cleanOnce(ctx, r)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("clean up after pod %s: %w", v.Pod.UID, err)
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

func (v *Victim) cleanOnce(ctx context.Context, r Runtime) error {
	// Between the ranking and the kill the runtime may have made the pod's first sandbox, or its next one.
	now, err := r.SandboxesOf(ctx, v.Pod.UID, v.since)
	if err != nil {
		return err
	}
	for _, id := range now {
		if !slices.Contains(v.ids, id) {
			v.ids = append(v.ids, id)
		}
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
