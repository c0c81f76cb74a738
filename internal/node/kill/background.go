package kill

import (
	"os"
	"sync/atomic"
	"time"

	"jettison/cgroup"
)

// A process that creates or removes a cgroup in the victim's directory locks that directory while it
// allocates (strike.go). Opening a file there waits for the lock. So goroutines of the Killer do the
// tasks that no caller must wait for: WaitEmpty reports the death without delay, and the threads that
// kill stay available.
const (
	maxWorkers = 8 // two for a victim may be blocked in the kernel; kills have their own goroutines
	maxTasks   = 2 * maxDying
)

// backgroundTask is the work on a victim that a worker does.
type backgroundTask uint8

const (
	readCPUTime backgroundTask = iota
	raisePriority
	repeatSingly    // one more round of the kill process by process
	backgroundTasks // their number
)

// assignment is a task of a victim that waits for a worker.
type assignment struct {
	v    *Victim
	task backgroundTask
}

// background is the part of a Victim that its tasks use. Every field is atomic.
type background struct {
	assigned [backgroundTasks]atomic.Bool // queued or running
	cpuTime  atomic.Pointer[cpuReading]   // the latest; nil: none
}

// assign queues a task for a worker, unless the same task is queued or running. It never blocks.
// A nil Killer and a closed one return os.ErrClosed.
func (k *Killer) assign(v *Victim, c backgroundTask) error {
	if k == nil {
		return os.ErrClosed
	}
	if !v.background.assigned[c].CompareAndSwap(false, true) {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	err := os.ErrClosed
	switch {
	case k.ended:
	case c == repeatSingly: // a kill waits for no other task
		v.life.retain()
		k.workerGroup.Go(func() { v.finish(c) })
		return nil
	default:
		err = errBusy
		select {
		case k.background <- assignment{v, c}:
			v.life.retain()
			if k.workers < maxWorkers {
				k.workers++
				k.workerGroup.Go(k.work)
			}
			return nil
		default:
		}
	}
	v.background.assigned[c].Store(false)
	return err
}

// work does the queued tasks. It has no raised priority.
func (k *Killer) work() {
	for a, ok := k.nextTask(); ok; a, ok = k.nextTask() {
		a.v.finish(a.task)
	}
}

// finish does an assigned task, and ends its use of the victim.
func (v *Victim) finish(c backgroundTask) {
	v.do(c)
	v.background.assigned[c].Store(false)
	v.release()
}

// nextTask returns the next task. Without a queued task, the calling worker must end.
func (k *Killer) nextTask() (a assignment, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case a = <-k.background:
		return a, true
	default:
		k.workers--
		return a, false
	}
}

// inBackground has a worker do a task, or skips it if too many are queued. Without a Killer, or after
// its Close, the calling goroutine does it.
func (v *Victim) inBackground(c backgroundTask) {
	if v.killer.assign(v, c) == os.ErrClosed {
		v.do(c)
	}
}

func (v *Victim) do(c backgroundTask) {
	switch c {
	case readCPUTime:
		v.readCPUTime()
	case raisePriority:
		v.raisePriority()
	case repeatSingly:
		v.killAgain()
	}
}

// cpuReading is the CPU time that the tasks of a victim have used.
type cpuReading struct {
	used  time.Duration
	began time.Duration // CLOCK_MONOTONIC, before the reading
}

// readCPUTime reads the CPU time.
func (v *Victim) readCPUTime() {
	began := monotonic()
	if used, err := v.file.monitors.cpuTime(&v.group.stat); err == nil {
		v.background.cpuTime.Store(&cpuReading{used, began})
	}
}

// killAgain runs one more round of the kill process by process, unless one is running. An error shows
// as remaining processes.
func (v *Victim) killAgain() {
	if !v.singles.mu.TryLock() {
		return
	}
	defer v.singles.mu.Unlock()
	if v.life.over() {
		return
	}
	if v.singles.again == nil {
		v.singles.again = cgroup.NewProcKiller()
	}
	_, _ = v.singles.kill(v.oneByOne(v.singles.again))
}
