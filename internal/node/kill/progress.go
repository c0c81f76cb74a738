package kill

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// progress is how far the kill of a victim has come. Kill and the threads that carry it out write
// it, and any goroutine reads it: every field is atomic.
type progress struct {
	killed    atomic.Bool // Kill has worked, or is under way
	singly    atomic.Bool // process by process
	struck    atomic.Bool // a kill has worked
	heldUp    atomic.Bool // the write waits for a lock of the kernel
	writeErr  atomic.Pointer[error]
	singleErr atomic.Pointer[error]
}

// begin notes that the victim is killed, and reports whether that is new.
func (p *progress) begin() (first bool) { return p.killed.CompareAndSwap(false, true) }

// retract takes begin back, after the kill has failed.
func (p *progress) retract() { p.killed.Store(false) }

// goSingly notes that the processes are killed one by one.
func (p *progress) goSingly() { p.singly.Store(true) }

// holdUp notes that the kernel holds the write up.
func (p *progress) holdUp() { p.heldUp.Store(true) }

// wrote remembers the result of a write of cgroup.kill.
func (p *progress) wrote(err error) { p.told(&p.writeErr, err) }

// singled remembers the result of a kill process by process.
func (p *progress) singled(err error) { p.told(&p.singleErr, err) }

// told remembers what became of a kill that perhaps nobody waits for any more.
func (p *progress) told(as *atomic.Pointer[error], err error) {
	if err == nil {
		p.struck.Store(true)
		return
	}
	why := err // the parameter would be allocated where all is well, too
	as.Store(&why)
}

// ErrNotKilled is WaitEmpty's if a kill that was under way has failed, so that the runtime has to
// kill the victim.
var ErrNotKilled = errors.New("the kernel refuses the kill")

// failed is why none of the kills that were under way has worked; nil: one has, or may yet.
func (p *progress) failed(rungs Ladder) error {
	wrote, singled := p.writeErr.Load(), p.singleErr.Load()
	switch {
	case p.struck.Load(), rungs.has(CgroupKill) && wrote == nil, rungs.has(Pidfd) && singled == nil,
		singled != nil && errors.Is(*singled, os.ErrDeadlineExceeded): // it is repeated
		return nil
	}
	err := ErrNotKilled
	for _, why := range []*error{wrote, singled} {
		if why != nil {
			err = fmt.Errorf("%w: %w", err, *why)
		}
	}
	return err
}
