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

// raisedCPU is what was done to the CPU limits of the victim's own cgroup. mu guards raised, below
// and before, and one thread at a time raises or restores; group does not change.
type raisedCPU struct {
	mu     sync.Mutex
	group  *cgroup.Group // pinnedGroup.reap
	raised bool
	below  bool // groups below it were raised, too
	before cgroup.CPUSettings
}

func (c *raisedCPU) init(g *cgroup.Group) { c.group = g }

// raise lifts the CPU limits of the victim's own cgroup and remembers what it had, unless the
// victim is dead.
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

// raisesBelow notes that groups below the victim's own are raised.
func (c *raisedCPU) raisesBelow() {
	c.mu.Lock()
	c.below = true
	c.mu.Unlock()
}

// restore puts the limits back, once. lives: the victim is given up alive, so the groups below are
// restored, too.
func (c *raisedCPU) restore(lives bool, steps *stepLog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.raised {
		return
	}
	c.raised = false
	var buf [256]byte
	var err error
	if c.below && lives {
		err = restoreAll(c.group, c.before, time.Now().Add(mendLimit), sound, buf[:])
	} else {
		err = restoreCPU(c.group, c.before, buf[:])
	}
	if !errors.Is(err, cgroup.ErrVanished) {
		steps.add(stepRestored, 0, err)
	}
}

// lift raises cpu.max and cpu.weight in the victim's groups. What each had is noted: its own may
// live on (a kubelet makes a new sandbox in it), and those of its containers do where the victim
// does not die.
func (r *reaping) lift() {
	v := r.v
	r.groups, r.top, r.until = 0, true, time.Now().Add(boostLimit)
	if e, err := v.group.reap.Events(r.buf[:]); errors.Is(err, cgroup.ErrVanished) || err == nil &&
		!e.Populated {
		v.steps.add(CPU.String(), 0, nil) // dead already
		return
	}
	err := v.cpu.raise(&v.life, r.buf[:])
	if err == nil {
		r.groups++
		v.cpu.raisesBelow()
		r.walker.Walk(&v.group.reap, r.boost)
		err = r.err
	}
	r.err = nil
	if errors.Is(err, cgroup.ErrVanished) {
		err = nil
	}
	v.steps.add(CPU.String(), r.groups, err)
}

// boostGroup raises one group below the victim's own, unless the victim is dead: what is there then
// is another.
func (r *reaping) boostGroup(g *cgroup.Group) bool {
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
	// the controller is off there
	case errors.Is(err, os.ErrNotExist), errors.Is(err, cgroup.ErrVanished):
	case r.err == nil:
		r.err = err
	}
	return time.Now().Before(r.until)
}
