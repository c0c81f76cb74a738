package kill

import (
	"errors"
	"os"
	"sync"
	"time"

	"jettison/cgroup"
)

// boostLimit bounds the raising of CPU limits in a pod with very many groups.
const boostLimit = 100 * time.Millisecond

// raisedCPU records the changes to the CPU limits of the victim's own cgroup. mu guards raised,
// below and before, and lets one thread at a time raise or restore; group does not change.
type raisedCPU struct {
	mu     sync.Mutex
	group  *cgroup.Group // pinnedGroup.reap
	raised bool
	below  bool // child cgroups were raised too
	before cgroup.CPUSettings
}

func (c *raisedCPU) init(g *cgroup.Group) { c.group = g }

// raise raises the CPU limits of the victim's own cgroup and remembers the former values, unless
// the victim is dead.
func (c *raisedCPU) raise(l *life, buf []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.dead() {
		return nil
	}
	before, raised, err := raiseCPU(c.group, buf)
	c.raised, c.before = raised, before
	return err
}

// isRaised reports whether limits are raised and not restored.
func (c *raisedCPU) isRaised() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raised
}

// noteBelow records that child cgroups are raised too.
func (c *raisedCPU) noteBelow() {
	c.mu.Lock()
	c.below = true
	c.mu.Unlock()
}

// restore restores the limits, once. alive means that the victim is closed alive, so child cgroups
// are restored too.
func (c *raisedCPU) restore(alive bool, steps *stepLog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.raised {
		return
	}
	c.raised = false
	var buf [256]byte
	var err error
	if c.below && alive {
		err = restoreAll(c.group, c.before, time.Now().Add(restoreLimit), trustedNote, buf[:])
	} else {
		err = restoreCPU(c.group, c.before, buf[:])
	}
	if !errors.Is(err, cgroup.ErrVanished) {
		steps.add(stepRestored, 0, err)
	}
}

// lift raises cpu.max and cpu.weight in the victim's cgroups and notes the former values on each.
// The pod's own cgroup may outlive the victim (a kubelet creates a new sandbox in it), and so do
// the cgroups of its containers if the victim does not die.
func (r *reaper) lift() {
	v := r.v
	r.groups, r.top, r.until = 0, true, time.Now().Add(boostLimit)
	if e, err := v.group.reap.Events(r.buf[:]); errors.Is(err, cgroup.ErrVanished) || err == nil &&
		!e.Populated {
		v.steps.add(CPU.String(), 0, nil) // already dead
		return
	}
	err := v.cpu.raise(&v.life, r.buf[:])
	if err == nil {
		r.groups++
		v.cpu.noteBelow()
		r.walker.Walk(&v.group.reap, r.boost)
		err = r.err
	}
	r.err = nil
	if errors.Is(err, cgroup.ErrVanished) {
		err = nil
	}
	v.steps.add(CPU.String(), r.groups, err)
}

// boostGroup raises the limits of one child cgroup, unless the victim is dead: cgroups that appear
// later belong to another pod life.
func (r *reaper) boostGroup(g *cgroup.Group) bool {
	if r.top {
		r.top = false
		return true
	}
	r.step()
	if r.v.life.dead() {
		return false
	}
	_, _, err := raiseCPU(g, r.buf[:])
	switch {
	case err == nil:
		r.groups++
	// the cpu controller is disabled there
	case errors.Is(err, os.ErrNotExist), errors.Is(err, cgroup.ErrVanished):
	case r.err == nil:
		r.err = err
	}
	return time.Now().Before(r.until)
}
