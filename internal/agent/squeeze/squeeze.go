// Package squeeze has pods give back cold memory before one of them is evicted: it looks at their
// cgroups, has package reclaim plan which pods to ask, writes memory.reclaim in small chunks, and
// tells what came of it. All of that happens on one thread of its own, for each write blocks while
// the kernel reclaims; its caller never waits.
//
//	squeeze.go   Squeezer: the thread, what it is asked and what it tells
//	look.go      what is read of pods and of the cgroups above them
//	chunk.go     the writes
//	part.go      Loop: when to squeeze, and what became of it, for the loop
//
// A chunk takes about 10 ms. Between two of them the thread looks at a flag: an eviction sets it,
// and does not wait. Chunks are small for one more reason: while one is under way its cgroup cannot
// be removed (cgroup/reclaim.go). What an eviction cut short is not judged.
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

// Options of Start.
type Options struct {
	// FS is the squeezer's own, which Close closes.
	FS         *cgroup.FS
	CgroupRoot string // the kubelet's: pods are looked for below it
	SysMount   string // empty: /sys; says whether the multi-generational LRU is on
	// Watch is for how long pods are watched afterwards for what they read in again; 0: 3 s.
	Watch time.Duration
}

// defaultWatch: what is not read in again within it was cold, or will be paid for after the
// pressure.
const defaultWatch = 3 * time.Second

// Request is one squeeze. The squeezer keeps it: its maps must not be changed any more.
type Request struct {
	reclaim.MemoryWish
	Signal stats.Signal      // that is short
	Before stats.Opt[uint64] // what is available of it, in bytes
	Fill   float64           // bytes a second by which that falls
	// SwapFree of the node, and how much of it has to stay free.
	SwapFree stats.Opt[uint64]
	SwapKeep uint64
	Exempt   map[string]bool // UIDs of pods that are not asked: critical, or on their way out
	Self     string          // cgroup of this process; empty: it is in no pod
}

// Squeezer does one squeeze at a time. Its methods may be called by one goroutine; none of them
// waits but Close.
type Squeezer struct {
	o       Options
	fs      *cgroup.FS
	jobs    chan *job
	effects chan reclaim.MemoryEffect
	quit    chan struct{}
	done    chan struct{} // closed when the thread has ended
	closed  bool

	busy    atomic.Bool         // a squeeze is under way, the watch after it included
	current atomic.Pointer[job] // that was last begun

	// The thread's own.
	buf []byte
}

// job is one squeeze under way.
type job struct {
	Request
	began time.Time
	stop  atomic.Bool
}

// Start starts the thread. Close the Squeezer.
func Start(o Options) *Squeezer {
	if o.SysMount == "" {
		o.SysMount = "/sys"
	}
	if o.Watch == 0 {
		o.Watch = defaultWatch
	}
	s := &Squeezer{o: o, fs: o.FS, jobs: make(chan *job, 1), effects: make(chan reclaim.MemoryEffect,
		2), quit: make(chan struct{}),
		done: make(chan struct{}), buf: make([]byte, 16<<10)}
	go s.run()
	return s
}

// Try begins a squeeze. false: one is under way still, or its pods are being watched.
func (s *Squeezer) Try(r Request) bool {
	if s.closed || !s.busy.CompareAndSwap(false, true) {
		return false
	}
	j := &job{Request: r, began: time.Now()}
	s.current.Store(j)
	s.jobs <- j // has room: nothing is under way
	return true
}

// Stop has the squeeze that is under way ask for no further chunk. It returns at once; the one that
// the kernel is at is finished.
func (s *Squeezer) Stop() {
	if j := s.current.Load(); j != nil {
		j.stop.Store(true)
	}
}

// Effects are what became of squeezes, two for each: one when the last chunk is done, without
// After, for only the caller observes signals; and, unless nothing was asked, a Final one some
// seconds later, with what the pods read in again. Take them soon.
func (s *Squeezer) Effects() <-chan reclaim.MemoryEffect { return s.effects }

// Close ends the thread and waits for it, not longer than limit: the kernel may be writing to a
// swap device that hangs. os.ErrDeadlineExceeded: it is left behind, and ends when the kernel lets
// it.
func (s *Squeezer) Close(limit time.Duration) error {
	if !s.closed {
		s.closed = true
		s.Stop()
		close(s.quit)
	}
	if !retry.Await(s.done, limit) {
		return fmt.Errorf("stop reclaiming memory: the kernel does not end it: %w",
			os.ErrDeadlineExceeded)
	}
	return nil
}

// run is the thread's life.
func (s *Squeezer) run() {
	defer close(s.done)
	defer s.fs.Close()
	runtime.LockOSThread() // and ends with it: what the kernel blocks is this thread and no other
	for {
		select {
		case <-s.quit:
			return
		case j := <-s.jobs:
			s.squeeze(j)
		}
	}
}

// squeeze does one squeeze from look to judgement.
func (s *Squeezer) squeeze(j *job) {
	targets, look, err := s.look(j)
	defer func() {
		for _, t := range targets {
			t.close()
		}
	}()
	e := reclaim.MemoryEffect{Kind: j.Kind, Signal: j.Signal, Began: j.began, Before: j.Before,
		Err: err}
	if err == nil {
		// What the look took is gone of the time.
		wish := j.MemoryWish
		wish.Time -= time.Since(j.began)
		plan := reclaim.PlanMemory(look, wish)
		e.Bytes, e.Why = plan.Bytes, plan.Why
		s.carryOut(j, &e, plan.Asks, targets)
	}
	e.Stopped = j.stop.Load()
	e.Took = time.Since(j.began)
	if fell := j.Fill * e.Took.Seconds(); fell > 0 {
		e.Fell = uint64(fell)
	}
	e.Final = e.Asked == 0
	if !s.tell(e) || e.Final {
		return
	}
	if retry.Await(s.quit, s.o.Watch) {
		return
	}
	e.Refaulted = s.refaulted(targets)
	e.Final = true
	s.tell(e)
}

// tell hands an effect over; after the final one the next squeeze may begin. false: the squeezer is
// being closed.
func (s *Squeezer) tell(e reclaim.MemoryEffect) bool {
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

// gone: a cgroup that vanished is no failure.
func gone(err error) bool { return errors.Is(err, cgroup.ErrVanished) }
