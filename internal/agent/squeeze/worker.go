// Package squeeze implements proactive reclaim: it reclaims cold memory of pods before one of them
// must be evicted. It reads their cgroups, lets package reclaim plan the pods and amounts, writes
// memory.reclaim in small chunks, and reports the effect. It works on its own thread, because each
// write blocks while the kernel reclaims; the caller never waits.
//
//	worker.go    Worker: the thread, its requests and effects
//	look.go      reading pods and the cgroups above them
//	chunk.go     the writes
//	loop.go      Loop: when to reclaim, and the effects, for the loop
//
// A chunk takes about 10 ms. Between two chunks the thread checks a flag, which an eviction sets
// without waiting. Chunks are also small because the cgroup cannot be removed during a write
// (cgroup/reclaim.go). A reclaim that an eviction stopped is not judged.
package squeeze

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"jettison/cgroup"
	"jettison/internal/base/retry"
	"jettison/reclaim"
	"jettison/stats"
)

// Options configures Start.
type Options struct {
	// FS belongs to the Worker, and Close closes it.
	FS         *cgroup.FS
	CgroupRoot string // the kubelet's: pods are searched below it
	SysMount   string // empty: /sys; shows whether the multi-generational LRU is on
	// Watch is the time after a reclaim in which refaults of its pods are counted; 0: 3 s.
	Watch time.Duration
}

// defaultWatch is the default of Options.Watch: memory that is not read in again within it was
// cold, or costs only after the pressure.
const defaultWatch = 3 * time.Second

// Request is one reclaim. The Worker keeps it: the caller must not change its maps afterwards.
type Request struct {
	reclaim.MemoryTarget
	Signal stats.Signal      // that is short
	Before stats.Opt[uint64] // its value in bytes
	Fill   float64           // bytes a second by which it falls
	// SwapFree is the node's free swap, SwapKeep the part that must stay free.
	SwapFree stats.Opt[uint64]
	SwapKeep uint64
	Exempt   map[string]bool // UIDs of pods that are skipped: critical, or being evicted
	Self     string          // cgroup of this process; empty: it is in no pod
}

// Worker carries out one reclaim at a time. Its methods are for one goroutine; only Close blocks.
type Worker struct {
	o       Options
	fs      *cgroup.FS
	jobs    chan *job
	effects chan reclaim.MemoryEffect
	quit    chan struct{}
	done    chan struct{} // closed when the thread has ended
	closed  bool

	busy    atomic.Bool         // a reclaim is in progress, including the watch after it
	current atomic.Pointer[job] // the last one that began

	// Used only by the thread.
	buf []byte
}

// job is one reclaim in progress.
type job struct {
	Request
	began time.Time
	stop  atomic.Bool
}

// Start starts the thread. The caller must Close the Worker.
func Start(o Options) *Worker {
	if o.SysMount == "" {
		o.SysMount = "/sys"
	}
	if o.Watch == 0 {
		o.Watch = defaultWatch
	}
	s := &Worker{o: o, fs: o.FS, jobs: make(chan *job, 1), effects: make(chan reclaim.MemoryEffect,
		2), quit: make(chan struct{}),
		done: make(chan struct{}), buf: make([]byte, 16<<10)}
	go s.run()
	return s
}

// Try begins a reclaim. It returns false if one is in progress, or its pods are being watched.
func (s *Worker) Try(r Request) bool {
	if s.closed || !s.busy.CompareAndSwap(false, true) {
		return false
	}
	j := &job{Request: r, began: time.Now()}
	s.current.Store(j)
	s.jobs <- j // does not block: no reclaim is in progress
	return true
}

// Stop prevents further chunks of the reclaim in progress. It returns immediately; the kernel
// finishes the current chunk.
func (s *Worker) Stop() {
	if j := s.current.Load(); j != nil {
		j.stop.Store(true)
	}
}

// Effects returns the effects of reclaims, two for each: the first after the last chunk, without
// After, because only the caller observes signals; the second, Final, some seconds later with the
// refaults, unless nothing was requested. The caller must receive them soon.
func (s *Worker) Effects() <-chan reclaim.MemoryEffect { return s.effects }

// Close ends the thread and waits for it up to limit: the kernel may be writing to a swap device
// that hangs. The error is os.ErrDeadlineExceeded if the thread is left behind; it ends when the
// kernel returns.
func (s *Worker) Close(limit time.Duration) error {
	if !s.closed {
		s.closed = true
		s.Stop()
		close(s.quit)
	}
	if !retry.Await(s.done, limit) {
		return fmt.Errorf("stop proactive reclaim: the kernel has not finished it: %w",
			os.ErrDeadlineExceeded)
	}
	return nil
}

// run is the thread's main function.
func (s *Worker) run() {
	defer close(s.done)
	defer s.fs.Close()
	runtime.LockOSThread() // the kernel blocks only this thread, which ends with the goroutine
	for {
		select {
		case <-s.quit:
			return
		case j := <-s.jobs:
			s.reclaimOnce(j)
		}
	}
}

// reclaimOnce carries out one reclaim, from the look to its effect.
func (s *Worker) reclaimOnce(j *job) {
	targets, look, err := s.look(j)
	defer func() {
		for _, t := range targets {
			t.close()
		}
	}()
	e := reclaim.MemoryEffect{Kind: j.Kind, Signal: j.Signal, Began: j.began, Before: j.Before,
		Err: err}
	if err == nil {
		// The look has used part of the time.
		wish := j.MemoryTarget
		wish.Time -= time.Since(j.began)
		plan := reclaim.PlanMemory(look, wish)
		e.Bytes, e.Why = plan.Bytes, plan.Why
		s.carryOut(j, &e, plan.Requests, targets)
	}
	e.Stopped = j.stop.Load()
	e.Took = time.Since(j.began)
	if fell := j.Fill * e.Took.Seconds(); fell > 0 {
		e.Fell = uint64(fell)
	}
	e.Final = e.Asked == 0
	if !s.send(e) || e.Final {
		return
	}
	if retry.Await(s.quit, s.o.Watch) {
		return
	}
	e.Refaulted = s.refaulted(targets)
	e.Final = true
	s.send(e)
}

// send sends an effect; after the final one the next reclaim may begin. It returns false if the
// Worker is being closed.
func (s *Worker) send(e reclaim.MemoryEffect) bool {
	if e.Final {
		s.busy.Store(false)
	}
	select {
	case s.effects <- e:
		return true
	case <-s.quit:
		return false
	}
}

// vanished reports whether an error means that the cgroup vanished, which is no failure.
func vanished(err error) bool { return errors.Is(err, cgroup.ErrVanished) }
