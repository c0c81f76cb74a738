package openfiles

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"jettison/stats/read/walk"
)

// guard makes the calls that somebody else can hold up. To look at a process' mappings the kernel
// takes its mmap_lock, and for its io and to compare two threads its exec_update_lock (v6.12
// fs/proc/task_mmu.c, fs/proc/base.c do_io_accounting, kernel/kcmp.c). A process keeps these while
// it waits for a page, or for a descriptor to be closed, by a file system that need not answer: one
// over the network, or one that a pod serves itself. A call that does so ends when that answers, or
// with the process. So a helper makes it, which is given up after patience; it ends when its call
// does. It is for one goroutine.
type guard struct {
	patience time.Duration
	free     *helper   // nil: none was begun
	gone     []*helper // those given up, as far as they are not back
	timer    *time.Timer
	all      sync.WaitGroup // helpers
	cpu      atomic.Int64   // that they have used, in nanoseconds
}

// What a pod holds up must blind no look at another for long, nor need more than a few threads.
const (
	stuckPatience = time.Second
	// helpers given up at a time; beyond, no call is made for a pod that holds one up: the looks at
	// others go on
	maxStuck      = 8
	maxStuckOfPod = 2 // of them for one pod
)

// errStuck: a call is held up, or was not made, for others of that pod are.
var errStuck = errors.New("the kernel does not answer")

// helper is a thread that makes one call after the other.
type helper struct {
	work  chan func()
	done  chan struct{} // one slot
	ended atomic.Bool
	uid   string // of the pod, and the process, whose call it was given up with
	pid   int
}

// do makes a call that is about a process of a pod. After an error it may be under way still: it
// must write nothing that others read.
func (g *guard) do(uid string, pid int, call func()) error {
	g.gone = slices.DeleteFunc(g.gone, func(h *helper) bool { return h.ended.Load() })
	of := 0
	for _, h := range g.gone {
		if h.pid == pid {
			return errStuck
		}
		if h.uid == uid {
			of++
		}
	}
	if of >= maxStuckOfPod || of > 0 && len(g.gone) >= maxStuck {
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
		g.timer = time.NewTimer(g.patience)
	} else {
		g.timer.Reset(g.patience)
	}
	select {
	case <-h.done:
		g.timer.Stop()
		return nil
	case <-g.timer.C:
	}
	h.uid, h.pid = uid, pid
	g.gone, g.free = append(g.gone, h), nil
	close(h.work)
	return errStuck
}

// holds reports whether a process or its pod holds calls up, so that others about it may not be
// made.
func (g *guard) holds(uid string, pid int) bool {
	return slices.ContainsFunc(g.gone, func(h *helper) bool {
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

// used is the CPU time of the calls.
func (g *guard) used() time.Duration { return time.Duration(g.cpu.Load()) }

// close waits for the end of every helper: for those that were given up as long as the kernel holds
// them.
func (g *guard) close() {
	if g.free != nil {
		close(g.free.work)
		g.free = nil
	}
	g.all.Wait()
}
