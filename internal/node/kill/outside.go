package kill

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

// part is a container of the victim outside the pod's cgroup. Its methods are those of a Victim.
type part interface {
	Kill() error
	Killed() bool
	Struck() bool
	KilledAt() Stamp
	WaitEmpty(ctx context.Context, limit time.Duration) error
	Close()
}

// pinOutside pins the containers outside the pod's cgroup. pin pins a cgroup. A container that has
// exited is left out. After an error the victim is closed.
func (v *Victim) pinOutside(pod *stats.PodStats, pin func(*stats.PodStats) (*Victim, error)) error {
	for i := range pod.Outside {
		c := &pod.Outside[i]
		v.group.outsideIDs = append(v.group.outsideIDs, c.ID)
		var one part
		var err error
		if c.Cgroup != "" {
			one, err = pin(&stats.PodStats{PodRef: pod.PodRef, Cgroup: c.Cgroup, CgroupID: c.CgroupID})
		} else {
			one, err = pinTree(c.Process, v.ladder)
		}
		switch {
		case errors.Is(err, cgroup.ErrVanished), err == unix.ESRCH:
		case err != nil:
			v.Close()
			return fmt.Errorf("pin container %s of pod %s: %w", c.ID, pod.PodRef.UID, err)
		default:
			v.group.outside = append(v.group.outside, one)
		}
	}
	return nil
}

// Located reports whether the kernel reports the end of the victim's processes: its cgroup or a
// container outside it is pinned. Otherwise only the runtime does.
func (v *Victim) Located() bool { return v.group.known || len(v.group.outside) > 0 }

// eachOutside reports whether has holds for each container outside the pod's cgroup.
func (v *Victim) eachOutside(has func(part) bool) bool {
	for _, p := range v.group.outside {
		if !has(p) {
			return false
		}
	}
	return true
}

// killOutside kills the containers outside the pod's cgroup, all at the same time: one may take
// 2*slowKill.
func (v *Victim) killOutside() error {
	answers := make(chan error, len(v.group.outside))
	for _, p := range v.group.outside {
		go func() { answers <- p.Kill() }()
	}
	var err error
	for range v.group.outside {
		err = errors.Join(err, <-answers)
	}
	return err
}

// waitOutside waits for the containers outside the pod's cgroup and for own, all at the same time.
func (v *Victim) waitOutside(ctx context.Context, limit time.Duration, own func() error) error {
	if len(v.group.outside) == 0 {
		return own()
	}
	answers := make(chan error, len(v.group.outside))
	for _, p := range v.group.outside {
		go func() { answers <- p.WaitEmpty(ctx, limit) }()
	}
	err := own()
	for range v.group.outside {
		err = errors.Join(err, <-answers)
	}
	return err
}
