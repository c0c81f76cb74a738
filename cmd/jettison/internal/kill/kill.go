// Package kill is the kill ladder: it pins a victim, kills it through the kernel, waits until the kernel says that it is
// gone, and has the runtime clean up after it.
package kill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/stats"
)

// Runtime is what the ladder needs of a container runtime (*cri.Client).
type Runtime interface {
	StopContainer(ctx context.Context, id string, timeout time.Duration) error
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	ContainersOf(ctx context.Context, sandboxID string) ([]cri.Container, error)
	Running(ctx context.Context, sandboxID string) (int, error)
	SandboxesOf(ctx context.Context, uid string, before time.Time) ([]string, error)
}

// Victim is a pinned pod: the very cgroup and the very sandboxes that were ranked. A pod that comes back under the same UID
// is another Victim. Kill and Close may be called at any time by anybody; the other methods by one goroutine at a time.
type Victim struct {
	Pod   stats.PodReference
	group *cgroup.Group // nil: none was found, only the runtime can kill it
	ids   []string
	since time.Time // when it was pinned: sandboxes made later are not its own

	mu     sync.Mutex
	killer *cgroup.Group   // group again, for Kill, which does not wait for who waits; nil as group. mu guards it
	closed bool            // mu guards it
	alive  context.Context // ended by end, which the first Kill that worked calls; nil without a group
	end    context.CancelFunc
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
	if v.group, err = open(fs, pod); err != nil {
		return nil, err
	}
	if v.killer, err = open(fs, pod); err != nil {
		v.group.Close()
		return nil, err
	}
	if v.killer.ID() != v.group.ID() {
		v.Close()
		return nil, fmt.Errorf("pin pod %s: cgroup /%s is another one now", pod.PodRef.UID, pod.Cgroup)
	}
	v.alive, v.end = context.WithCancel(context.Background())
	return v, nil
}

func open(fs *cgroup.FS, pod *stats.PodStats) (*cgroup.Group, error) {
	g, err := fs.Group(pod.Cgroup)
	if err != nil {
		return nil, fmt.Errorf("pin pod %s: %w", pod.PodRef.UID, err)
	}
	if g.ID() != pod.CgroupID && pod.CgroupID != (cgroup.ID{}) {
		g.Close()
		return nil, fmt.Errorf("pin pod %s: cgroup /%s is another one now", pod.PodRef.UID, pod.Cgroup)
	}
	return g, nil
}

// Close gives the descriptors back. Nothing but Kill may be under way.
func (v *Victim) Close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.group != nil && !v.closed {
		v.group.Close()
		v.killer.Close()
		if v.end != nil {
			v.end()
		}
	}
	v.closed = true
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
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.group == nil:
		return errors.New("no cgroup of the pod is known")
	case v.closed:
		return fmt.Errorf("kill pod %s: %w", v.Pod.UID, os.ErrClosed)
	}
	if err := v.killer.Kill(); err != nil && !errors.Is(err, cgroup.ErrVanished) {
		return err
	}
	v.end()
	return nil
}

// Killed reports whether a Kill has worked.
func (v *Victim) Killed() bool { return v.alive != nil && v.alive.Err() != nil }

// WaitEmpty blocks until no process of the victim is left, by the kernel's word.
func (v *Victim) WaitEmpty(ctx context.Context, limit time.Duration) error {
	if v.group == nil {
		return nil // Clean is what kills it
	}
	return v.group.WaitEmpty(ctx, limit)
}
