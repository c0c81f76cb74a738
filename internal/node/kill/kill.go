package kill

import (
	"errors"
	"fmt"
	"os"

	"jettison/cgroup"
)

// Kill sends SIGKILL to every process of the victim: cgroup.kill, or where the kernel has none or
// refuses, process by process. A victim that is gone already is no error. An error means that
// something of it may live; Clean then has the runtime kill it. With a Killer its threads do it,
// and Kill waits for no lock of the kernel: a write that takes longer than 20 ms goes on while the
// processes are killed one by one beside it, and after as long again Kill returns. What hastens the
// death goes on in threads of the Killer, too.
func (v *Victim) Kill() error {
	v.replies.mu.Lock()
	defer v.replies.mu.Unlock()
	switch {
	case !v.group.known:
		return errors.New("no cgroup of the pod is known")
	case !v.life.retainOpen():
		return fmt.Errorf("kill pod %s: %w", v.Pod.UID, os.ErrClosed)
	}
	defer v.release() // Close may be called meanwhile
	if !v.ladder.has(CgroupKill | Pidfd) {
		return fmt.Errorf("kill pod %s: only the runtime may (rungs: %s)", v.Pod.UID, v.ladder)
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

// climb tries the rungs that kill, until one works, without a Killer's threads.
func (v *Victim) climb() error {
	var refused error
	if v.ladder.has(CgroupKill) {
		if v.file.busy() {
			return nil // it is being written, by a thread that outlives its Killer
		}
		var buf [256]byte
		if refused = v.write(buf[:]); refused == nil {
			return nil
		}
	}
	if !v.ladder.has(Pidfd) {
		return refused
	}
	v.progress.goSingly()
	if err := v.eachProcess(cgroup.NewProcKiller()); err != nil {
		return errors.Join(refused, err)
	}
	return nil
}

// Killed reports whether a Kill has worked, or is under way.
func (v *Victim) Killed() bool { return v.progress.killed.Load() }

// Struck reports whether the kernel has carried a kill out: the write of cgroup.kill has returned,
// or all processes were signalled. A kill that only waits for that ends with this process, perhaps.
func (v *Victim) Struck() bool { return v.progress.struck.Load() }

// strike has the victim killed by the Killer's threads. It waits for a moment only: no error means
// that it is killed, or that a kill is under way which the kernel holds up; what became of that one
// is said by WaitEmpty.
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
			v.progress.holdUp()
		}
	}
	if !v.ladder.has(Pidfd) {
		return refused
	}
	v.progress.goSingly()
	err, done := v.replies.await(k.errand(errand{v, killSingly}), v.replies.singled, slowKill)
	if slow || !done || err == nil { // of two that are under way one will tell
		return nil
	}
	return errors.Join(refused, err)
}

// write writes cgroup.kill, unless no process of the victim is left: it may have waited behind
// others' writes while the victim died by its pidfds, and a kubelet makes a pod's next sandbox in
// the same cgroup. Whether one is left is looked up only for a write that was held up: for one that
// begins at once that would only take longer.
func (v *Victim) write(buf []byte) error {
	v.file.mu.Lock()
	defer v.file.mu.Unlock()
	if v.life.dead() || v.progress.heldUp.Load() && v.file.isEmpty(buf) {
		v.progress.wrote(nil)
		return nil
	}
	if v.life.over() { // nobody looks whether it is empty any more
		return os.ErrClosed
	}
	err := v.file.write()
	v.steps.add(CgroupKill.String(), 0, err)
	v.progress.wrote(err)
	return err
}

// writeAgain writes it once more, unless no process is left: what comes then is not the victim.
// What goes wrong shows in who is left.
func (v *Victim) writeAgain(buf []byte) {
	if !v.file.mu.TryLock() {
		return // it is being written
	}
	defer v.file.mu.Unlock()
	// the look may take long, too
	if v.file.err != nil || v.life.over() || v.file.isEmpty(buf) || v.life.dead() {
		return
	}
	v.steps.call(stepAgain, v.file.write())
}

// eachProcess kills process by process, unless that is being done, or no process of the victim is
// left, as in write.
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
	by.Unfrozen = v.progress.heldUp.Load()
	n, err := v.singles.kill(by)
	v.steps.add(Pidfd.String(), n, err)
	v.progress.singled(err)
	return err
}
