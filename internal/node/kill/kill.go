package kill

import (
	"errors"
	"fmt"
	"os"

	"jettison/cgroup"
)

// Kill sends SIGKILL to every process of the victim, through cgroup.kill or, where the kernel
// lacks or refuses that, process by process. A victim that is already dead is no error. nil means
// killed, or pending in the kernel (Struck). An error means that a process may still live; Clean
// then has the runtime kill it.
//
// With a Killer, its threads kill and Kill does not wait for kernel locks: after 20 ms a blocked
// write continues while the processes are killed one by one, and after another 20 ms Kill returns.
// The steps that speed up the death also run in threads of the Killer.
func (v *Victim) Kill() error {
	if len(v.group.outside) == 0 {
		return v.killGroup()
	}
	var err error
	if v.group.known {
		err = v.killGroup()
	}
	if err = errors.Join(err, v.killOutside()); err == nil {
		v.life.end()
		v.progress.begin()
	}
	return err
}

// killGroup kills the processes in the pod's cgroup.
func (v *Victim) killGroup() error {
	v.replies.mu.Lock()
	defer v.replies.mu.Unlock()
	switch {
	case !v.group.known:
		return errors.New("no cgroup of the pod is known")
	case !v.life.retainOpen():
		return fmt.Errorf("kill pod %s: %w", v.Pod.UID, os.ErrClosed)
	}
	defer v.release() // Close may be called concurrently
	if !v.ladder.has(CgroupKill | Pidfd) {
		return fmt.Errorf("kill pod %s: the configured kill steps (%s) leave the kill to the runtime",
			v.Pod.UID, v.ladder)
	}
	var err error
	if v.killer != nil && v.killer.open() {
		err = v.strike()
	} else {
		err = v.climb()
	}
	if err != nil {
		return err
	}
	v.life.end()
	if v.progress.begin() && v.killer != nil && v.ladder.has(CPU|Mrelease) {
		v.life.retain()
		if err := v.killer.offer(v); err != nil {
			v.release()
			v.steps.add(Mrelease.String(), 0, err)
		}
	}
	return nil
}

// climb tries the steps that kill until one works, without the threads of a Killer.
func (v *Victim) climb() error {
	var refused error
	if v.ladder.has(CgroupKill) {
		if v.file.busy() {
			return nil // a thread that outlives its Killer is writing it
		}
		var buf [killBuffer]byte
		if refused = v.write(buf[:]); refused == nil {
			return nil
		}
	}
	if !v.ladder.has(Pidfd) {
		return refused
	}
	v.progress.setSingly()
	if err := v.eachProcess(cgroup.NewProcKiller()); err != nil {
		return errors.Join(refused, err)
	}
	return nil
}

// Killed reports whether a Kill succeeded or is in progress.
func (v *Victim) Killed() bool {
	return v.progress.killed.Load() && v.eachOutside(part.Killed)
}

// Struck reports whether the kernel carried out a kill: the write of cgroup.kill returned, or all
// processes were signalled. A kill that is still pending may end when the agent exits.
func (v *Victim) Struck() bool {
	return (v.progress.struck.Load() != 0 || !v.group.known) && v.eachOutside(part.Struck)
}

// KilledAt returns when the kernel carried out the kill. The calling thread may get CPU time only
// much later. While a kill is pending in the kernel, KilledAt returns the current time.
func (v *Victim) KilledAt() (at Stamp) {
	if v.group.known || len(v.group.outside) == 0 {
		at = v.progress.struckAt()
	}
	for _, p := range v.group.outside {
		if last := p.KilledAt(); last.Monotonic > at.Monotonic {
			at = last
		}
	}
	return at
}

// strike has the Killer's threads kill the victim. It blocks for 2*slowKill at most. A nil error
// means that the victim was killed, or that the kill is blocked in the kernel; WaitEmpty returns
// the outcome of a blocked kill.
func (v *Victim) strike() error {
	k := v.killer
	v.replies.drain()
	var refused error
	slow := false
	if v.ladder.has(CgroupKill) {
		err, done := v.replies.await(k.strike(strike{v: v}), v.replies.written, slowKill)
		if done && err == nil {
			return nil
		}
		if refused, slow = err, !done; slow {
			v.steps.add(stepHeldUp, v.processes.signal(), nil)
			v.progress.setHeldUp()
		}
	}
	if !v.ladder.has(Pidfd) {
		return refused
	}
	v.progress.setSingly()
	err, done := v.replies.await(k.errand(errand{v, killProcesses}), v.replies.singled, slowKill)
	if slow || !done || err == nil { // at least one kill is in progress and records its result
		return nil
	}
	return errors.Join(refused, err)
}

// write writes cgroup.kill, unless no process of the victim is left. The write may have queued
// behind others while the victim died through its pidfds, and a kubelet creates the pod's next
// sandbox in the same cgroup. Only a write that was held up checks for remaining processes, because
// the check would delay a write that starts immediately.
func (v *Victim) write(buf []byte) error {
	v.file.mu.Lock()
	defer v.file.mu.Unlock()
	if v.life.dead() || v.progress.heldUp.Load() && v.file.isEmpty(buf) {
		v.progress.wrote(nil)
		return nil
	}
	if v.life.over() { // closed: no caller checks whether the cgroup is empty
		return os.ErrClosed
	}
	err := v.writeFile(buf)
	v.steps.add(CgroupKill.String(), 0, err)
	v.progress.wrote(err)
	return err
}

// rewrite writes cgroup.kill once more, unless no process is left: later processes in the cgroup
// are not the victim's. Errors are ignored, because WaitEmpty reports the remaining processes.
func (v *Victim) rewrite(buf []byte) {
	if !v.file.mu.TryLock() {
		return // another thread is writing it
	}
	defer v.file.mu.Unlock()
	// isEmpty may block for long, so dead is checked after it
	if v.file.err != nil || v.life.over() || v.file.isEmpty(buf) || v.life.dead() {
		return
	}
	v.steps.call(stepAgain, v.writeFile(buf))
}

// writeFile kills through cgroup.kill: the whole pod, or all but the runtime's monitors. It looks
// for monitors at each write, because the runtime may have started one after Pin. If a container is
// not killed alongside them, the whole pod is. v.file.mu is held.
func (v *Victim) writeFile(buf []byte) error {
	f := &v.file
	if f.monitors.among(f.group, buf) {
		if _, err := f.monitors.eachOther(f.group, &f.child, buf, killGroup); err == nil {
			return nil
		}
	}
	return f.write()
}

// oneByOne prepares a kill process by process.
func (v *Victim) oneByOne(by *cgroup.ProcKiller) *cgroup.ProcKiller {
	by.Unfrozen, by.Ended, by.Spare = v.progress.heldUp.Load(), &v.life.gone, nil
	if v.file.monitors.possible {
		by.Spare = v.file.monitors.isMonitor
	}
	return by
}

// eachProcess kills process by process, unless another thread does so already or, as in write, no
// process of the victim is left.
func (v *Victim) eachProcess(by *cgroup.ProcKiller) error {
	if !v.singles.mu.TryLock() {
		return nil
	}
	defer v.singles.mu.Unlock()
	if v.life.dead() {
		v.progress.singled(nil)
		return nil
	}
	if v.life.over() {
		return os.ErrClosed
	}
	n, err := v.singles.kill(v.oneByOne(by))
	v.steps.add(Pidfd.String(), n, err)
	v.progress.singled(err)
	return err
}
