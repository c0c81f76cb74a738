package openfiles

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"jettison/stats/read/walk"
)

// guard makes calls that another process can block. To read a process's mappings the kernel takes
// the mmap_lock of that process. To read its I/O counters, or to compare two threads, the kernel
// takes the exec_update_lock (v6.12 fs/proc/task_mmu.c, fs/proc/base.c do_io_accounting,
// kernel/kcmp.c). A process holds these locks while it waits for a page, or for a close, on a file
// system that may never answer: a network file system, or one that a pod itself serves. Such a call
// returns when the file system answers or the process ends. Therefore a helper thread makes the
// call, and guard abandons the helper after timeout. The helper ends when its call returns. Use a
// guard from one goroutine.
type guard struct {
	timeout time.Duration
	free    *helper   // nil: none
	stuck   []*helper // abandoned helpers with a call that has not returned
	timer   *time.Timer
	all     sync.WaitGroup // helpers
	cpu     atomic.Int64   // used by helpers, in nanoseconds
}

// Limits, so that calls that one pod blocks delay looks at other pods only briefly, and occupy only
// a few threads.
const (
	stuckTimeout = time.Second
	// helpers abandoned at the same time; at this number, guard makes no call for a pod that blocks
	// one, but continues for other pods
	maxStuck      = 8
	maxStuckOfPod = 2 // abandoned helpers of one pod
)

// errStuck: a call is blocked, or was not made because other calls about that pod are blocked.
var errStuck = errors.New("the kernel does not answer")

// helper is a thread that makes one call after another.
type helper struct {
	work  chan func()
	done  chan struct{} // one slot
	ended atomic.Bool
	uid   string // pod and process of the blocked call
	pid   int
}

// do makes a call about a process of a pod. After an error the call may still run, so it must not
// write to memory that the caller reads.
func (g *guard) do(uid string, pid int, call func()) error {
	g.stuck = slices.DeleteFunc(g.stuck, func(h *helper) bool { return h.ended.Load() })
	of := 0
	for _, h := range g.stuck {
		if h.pid == pid {
			return errStuck
		}
		if h.uid == uid {
			of++
		}
	}
	if of >= maxStuckOfPod || of > 0 && len(g.stuck) >= maxStuck {
		return errStuck
	}
	if g.free == nil {
		h := &helper{work: make(chan func()), done: make(chan struct{}, 1)}
		g.all.Go(func() { g.help(h) })
		g.free = h
	}
	h := g.free
	h.work <- call
	if g.timer == nil {
		g.timer = time.NewTimer(g.timeout)
	} else {
		g.timer.Reset(g.timeout)
	}
	select {
	case <-h.done:
		g.timer.Stop()
		return nil
	case <-g.timer.C:
	}
	h.uid, h.pid = uid, pid
	g.stuck, g.free = append(g.stuck, h), nil
	close(h.work)
	return errStuck
}

// isStuck reports whether a process or its pod blocks calls, so that further calls about it may
// be skipped.
func (g *guard) isStuck(uid string, pid int) bool {
	return slices.ContainsFunc(g.stuck, func(h *helper) bool {
		return !h.ended.Load() && (h.uid == uid || h.pid == pid)
	})
}

func (g *guard) help(h *helper) {
	defer h.ended.Store(true)
	walk.YieldDisk()
	for call := range h.work {
		began := walk.ThreadCPU()
		call()
		g.cpu.Add(int64(walk.ThreadCPU() - began))
		h.done <- struct{}{}
	}
}

// used returns the CPU time of the calls.
func (g *guard) used() time.Duration { return time.Duration(g.cpu.Load()) }

// close ends all helpers and waits for them, including abandoned helpers, until their system calls
// return.
func (g *guard) close() {
	if g.free != nil {
		close(g.free.work)
		g.free = nil
	}
	g.all.Wait()
}
