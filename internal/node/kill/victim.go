package kill

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"jettison/cgroup"
	"jettison/cri"
	"jettison/stats"
)

// Runtime contains the calls of a container runtime that the ladder needs (*cri.Client).
type Runtime interface {
	StopContainer(ctx context.Context, id string, timeout time.Duration) error
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	ContainersOf(ctx context.Context, sandboxID string) ([]cri.Container, error)
	Running(ctx context.Context, sandboxID string) (int, error)
	SandboxesOf(ctx context.Context, uid string) ([]cri.PodSandbox, error)
}

// Victim is a pinned pod: exactly the cgroup and the sandboxes that were ranked. A pod restarted
// under the same UID is another Victim. Any goroutine may call Kill, Killed, Steps and Close at any
// time; one goroutine at a time may call the other methods.
//
// Pod, ladder and killer are set by Pin and only read afterwards. Each part documents its users.
type Victim struct {
	Pod        stats.PodReference
	ladder     Ladder
	killer     *Killer // nil: no thread frees its memory
	steps      stepLog
	sandboxes  sandboxes
	group      pinnedGroup
	life       life
	replies    replies
	progress   progress
	file       killFile
	singles    singleKill
	processes  pinnedProcesses
	freeing    freeing
	background background
}

func newVictim() *Victim {
	v := &Victim{}
	v.sandboxes.init()
	v.life.init()
	v.replies.init()
	v.file.init(&v.group.kill)
	v.singles.init(&v.group.each)
	return v
}

// Pin is like Killer.Pin without the threads of a Killer: it uses the steps that kill and omits
// those that speed up the death.
func Pin(fs *cgroup.FS, pod *stats.PodStats) (*Victim, error) {
	v := newVictim()
	v.ladder = All &^ (CPU | Mrelease)
	err := v.attach(fs, pod)
	if err == nil {
		err = v.pinOutside(pod, func(one *stats.PodStats) (*Victim, error) { return Pin(fs, one) })
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// attach opens the victim's cgroup. It allocates nothing on success.
func (v *Victim) attach(fs *cgroup.FS, pod *stats.PodStats) error {
	v.Pod = pod.PodRef
	v.sandboxes.start(pod.SandboxIDs, Now())
	if pod.Cgroup == "" {
		if len(v.sandboxes.ids) == 0 && len(pod.Outside) == 0 {
			return fmt.Errorf("pin pod %s: no cgroup and no sandbox of the pod is known", pod.PodRef.UID)
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
	v.file.adopt(file)
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

// release ends one use of the descriptors; the last one closes them.
func (v *Victim) release() {
	if v.life.release() {
		v.closeAll()
	}
}

// closeAll closes every descriptor. No user of the descriptors is left.
func (v *Victim) closeAll() {
	v.closeGroups()
	v.processes.close()
}

// Close closes the descriptors once the threads that free memory no longer use them. Only Kill may
// run concurrently.
func (v *Victim) Close() {
	if !v.life.close() {
		return
	}
	for _, p := range v.group.outside {
		p.Close()
	}
	if !v.group.known {
		return
	}
	v.life.end()
	v.release()
	if v.killer != nil {
		v.killer.refill()
	}
}

// Steps returns a copy of the recorded steps, in order.
func (v *Victim) Steps() []Step {
	out := v.steps.snapshot()
	if len(v.group.outside) == 0 {
		return out
	}
	for _, p := range v.group.outside {
		if other, ok := p.(*Victim); ok {
			out = append(out, other.Steps()...)
		}
	}
	slices.SortStableFunc(out, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return out
}
