package kill

import (
	"context"
	"fmt"
	"time"

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
	SandboxesOf(ctx context.Context, uid string) ([]cri.PodSandbox, error)
}

// Victim is a pinned pod: the very cgroup and the very sandboxes that were ranked. A pod that comes
// back under the same UID is another Victim. Kill, Killed, Steps and Close may be called at any
// time by any goroutine; the other methods by one goroutine at a time.
//
// Pod, ladder and killer are set by Pin and only read afterwards. Each part says who may use it.
type Victim struct {
	Pod       stats.PodReference
	ladder    Ladder
	killer    *Killer // nil: it frees its memory itself
	steps     stepLog
	sandboxes sandboxes
	group     pinnedGroup
	life      life
	replies   replies
	progress  progress
	file      killFile
	singles   singleKill
	processes pinnedProcesses
	freeing   freeing
	cpu       raisedCPU
}

func newVictim() *Victim {
	v := &Victim{}
	v.sandboxes.init()
	v.life.init()
	v.replies.init()
	v.file.init(&v.group.kill)
	v.singles.init(&v.group.each)
	v.cpu.init(&v.group.reap)
	return v
}

// Pin is Killer.Pin without a Killer, and so without its threads: the rungs that kill, nothing that
// hastens death.
func Pin(fs *cgroup.FS, pod *stats.PodStats) (*Victim, error) {
	v := newVictim()
	v.ladder = All &^ (CPU | Mrelease)
	if err := v.attach(fs, pod); err != nil {
		return nil, err
	}
	return v, nil
}

// attach opens the victim's cgroup. It allocates nothing where all is well.
func (v *Victim) attach(fs *cgroup.FS, pod *stats.PodStats) error {
	v.Pod = pod.PodRef
	v.sandboxes.start(pod.SandboxIDs, Now())
	if pod.Cgroup == "" {
		if len(v.sandboxes.ids) == 0 {
			return fmt.Errorf("pin pod %s: neither a cgroup nor a sandbox of it is known", pod.PodRef.UID)
		}
		v.steps.add(stepPin, 0, nil)
		return nil
	}
	if err := v.open(fs, pod); err != nil {
		v.closeGroups()
		return fmt.Errorf("pin pod %s: %w", pod.PodRef.UID, err)
	}
	v.group.known = true
	v.life.begin()
	v.steps.add(stepPin, 0, nil)
	return nil
}

func (v *Victim) open(fs *cgroup.FS, pod *stats.PodStats) error {
	var held heldFunc
	if v.killer != nil {
		held = v.killer.held
	}
	file, err := v.group.open(fs, pod, held)
	v.file.take(file)
	if err != nil {
		return err
	}
	if v.ladder.has(CgroupKill) {
		v.file.open()
	}
	return nil
}

func (v *Victim) closeGroups() {
	v.group.close()
	v.file.close()
}

// release gives the descriptors back when they are not needed any more.
func (v *Victim) release() { v.life.release(v.giveBack) }

// giveBack puts the CPU limits back and closes every descriptor. Nothing uses the victim's
// descriptors any more.
func (v *Victim) giveBack() {
	v.restore()
	v.closeGroups()
	v.processes.close()
}

// Close gives the descriptors back, once the threads that free memory are done with them. Nothing
// but Kill may be under way.
func (v *Victim) Close() {
	if !v.life.close() || !v.group.known {
		return
	}
	v.life.end()
	v.release()
	if v.killer != nil {
		v.killer.refill()
	}
}

// Steps is what was done to the victim so far, in its order.
func (v *Victim) Steps() []Step { return v.steps.copied() }

// restore puts the CPU limits back, once no process is left in the cgroup: a kubelet keeps a pod's
// for its next sandbox. The groups below go with their processes, but where the victim lives and is
// given up.
func (v *Victim) restore() {
	died := v.life.die() // before the lock: who kills does not wait for who raises
	v.cpu.restore(!died, &v.steps)
}
