package read

import (
	"errors"
	"sync"
	"time"

	"jettison/stats"
	"jettison/stats/read/procfs"
)

// processMeter measures processes in shared cgroups, with their descendants. Each read has a
// goroutine of its own: a large tree takes tens of milliseconds. A read of /proc/PID/status may
// also be the last user of a dying process's memory, and then frees it (v6.12 fs/proc/task_mmu.c
// task_mem, get_task_mm and mmput in proc_pid_status). Use a processMeter from one goroutine at a
// time.
type processMeter struct {
	proc    *procfs.Proc
	async   bool // false: read in the caller's goroutine
	timer   *time.Timer
	waited  time.Duration // in this look
	running sync.WaitGroup
}

// processMemory is the state of one process.
type processMemory struct {
	last     processReading
	answer   chan processReading // one slot; nil: never read
	inFlight bool
}

// processReading is one reading. at is its start.
type processReading struct {
	at          time.Time
	anon, shmem uint64
	err         error
}

var errNotRead = errors.New("the process was not measured yet")

func newProcessMeter(proc *procfs.Proc) *processMeter {
	m := &processMeter{proc: proc, timer: time.NewTimer(time.Hour)}
	m.timer.Stop()
	return m
}

// begin begins a look.
func (m *processMeter) begin() { m.waited = 0 }

// read returns the memory of a process and its descendants (Proc.TreeMemory). All calls of a look
// together wait for longWait at most, and for shortWait if there are valid readings, which then
// count.
func (m *processMeter) read(p stats.ProcessID, of *processMemory) (anon, shmem uint64, err error) {
	if !m.async {
		return m.proc.TreeMemory(p)
	}
	if of.answer == nil {
		of.answer = make(chan processReading, 1)
	}
	select {
	case of.last = <-of.answer:
		of.inFlight = false
	default:
	}
	if !of.inFlight {
		of.inFlight = true
		m.running.Go(func() {
			r := processReading{at: time.Now()}
			r.anon, r.shmem, r.err = m.proc.TreeMemory(p)
			of.answer <- r
		})
	}
	limit := shortWait
	if !of.last.valid() {
		limit = longWait
	}
	m.await(of, limit-m.waited)
	if !of.last.valid() {
		return 0, 0, errNotRead
	}
	return of.last.anon, of.last.shmem, of.last.err
}

// valid reports whether the reading is new enough to choose a victim by it.
func (r *processReading) valid() bool { return time.Since(r.at) <= listValidFor }

func (m *processMeter) await(of *processMemory, limit time.Duration) {
	if limit <= 0 {
		return
	}
	start := time.Now()
	m.timer.Reset(limit)
	defer m.timer.Stop()
	select {
	case of.last = <-of.answer:
		of.inFlight = false
	case <-m.timer.C:
	}
	m.waited += time.Since(start)
}

// close waits for the reads, closeTimeout at most, because a blocked system call cannot be ended.
func (m *processMeter) close() {
	ended := make(chan struct{})
	go func() { m.running.Wait(); close(ended) }()
	m.timer.Reset(closeTimeout)
	defer m.timer.Stop()
	select {
	case <-ended:
	case <-m.timer.C:
	}
}
