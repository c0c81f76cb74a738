package kill

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// progress is the state of a victim's kill. Kill and the threads that carry it out write it, and
// any goroutine reads it: every field is atomic.
type progress struct {
	killed    atomic.Bool  // Kill succeeded or is in progress
	singly    atomic.Bool  // processes are killed one by one
	struck    atomic.Int64 // CLOCK_MONOTONIC in ns when the first kill succeeded; 0: none did
	heldUp    atomic.Bool  // the write blocks on a kernel lock
	writeErr  atomic.Pointer[error]
	singleErr atomic.Pointer[error]
}

// begin records that the victim is being killed, and reports whether this is the first call.
func (p *progress) begin() (first bool) { return p.killed.CompareAndSwap(false, true) }

// retract reverts begin after the kill failed.
func (p *progress) retract() { p.killed.Store(false) }

// setSingly records that the processes are killed one by one.
func (p *progress) setSingly() { p.singly.Store(true) }

// setHeldUp records that the write blocks in the kernel.
func (p *progress) setHeldUp() { p.heldUp.Store(true) }

// wrote records the result of a write of cgroup.kill.
func (p *progress) wrote(err error) { p.record(&p.writeErr, err) }

// singled records the result of a kill process by process.
func (p *progress) singled(err error) { p.record(&p.singleErr, err) }

// record stores the result of a kill. The caller of Kill may no longer wait for it.
func (p *progress) record(to *atomic.Pointer[error], err error) {
	if err == nil {
		p.struck.CompareAndSwap(0, int64(monotonic()))
		return
	}
	reason := err // a copy, so that the parameter is not heap-allocated on success
	to.Store(&reason)
}

// struckAt returns when the first kill succeeded; the current time while none did.
func (p *progress) struckAt() Stamp {
	at := Now()
	if struck := time.Duration(p.struck.Load()); struck != 0 {
		at = Stamp{Time: at.Time.Add(struck - at.Monotonic), Monotonic: struck}
	}
	return at
}

// ErrNotKilled is returned by WaitEmpty if a pending kill failed, so the runtime must kill the
// victim.
var ErrNotKilled = errors.New("the kernel refused the kill")

// failed returns why every kill failed, or nil if one succeeded or may still succeed.
func (p *progress) failed(ladder Ladder) error {
	wrote, singled := p.writeErr.Load(), p.singleErr.Load()
	switch {
	case p.struck.Load() != 0, ladder.has(CgroupKill) && wrote == nil, ladder.has(Pidfd) && singled == nil,
		singled != nil && errors.Is(*singled, os.ErrDeadlineExceeded): // WaitEmpty repeats the kill
		return nil
	}
	err := ErrNotKilled
	for _, reason := range []*error{wrote, singled} {
		if reason != nil {
			err = fmt.Errorf("%w: %w", err, *reason)
		}
	}
	return err
}
