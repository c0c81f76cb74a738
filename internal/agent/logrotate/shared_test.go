package logrotate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cri"
)

// odd is a runtime that does not do all for one container.
type odd struct {
	Runtime
	id           string
	mute, closed bool // it does not tell its log, or reopen it
}

func (o *odd) ContainerStatus(ctx context.Context, id string) (cri.Container, error) {
	if id == o.id && o.mute {
		return cri.Container{}, context.DeadlineExceeded
	}
	return o.Runtime.ContainerStatus(ctx, id)
}

func (o *odd) ReopenContainerLog(ctx context.Context, id string) error {
	if id == o.id && o.closed {
		return errors.New("container is in state UNKNOWN")
	}
	return o.Runtime.ReopenContainerLog(ctx, id)
}

// passes makes some, with a large log at each, and counts the rotations.
func (n *node) passes(from, to int) (rotated int) {
	n.t.Helper()
	for i := from; i < to; i++ {
		n.write("0.log", large("x"))
		r, _ := n.Pass(n.t.Context(), noon.Add(time.Duration(i)*time.Minute), n.list)
		rotated += r.Rotated
	}
	return rotated
}

// Two have one log, and one of them cannot reopen it: it is waited for, but not for ever.
func TestOneThatNeverReopens(t *testing.T) {
	n := newNode(t)
	n.container("other", "/log/pods/"+folder+"/0.log")
	o := &odd{Runtime: n.Runtime, id: "other", closed: true}
	n.Runtime = o
	if got := n.passes(0, patience-1); got != 0 {
		t.Errorf("rotated %d times before", got)
	}
	if got := n.passes(patience-1, patience+3); got != 4 {
		t.Errorf("rotated %d of 4 times", got)
	}
	o.closed = false
	n.passes(patience+3, patience+4)
	o.closed = true
	if got := n.passes(patience+4, 2*patience+3); got != 0 { // it could
		t.Errorf("rotated %d times at once", got)
	}
	n.list = n.list[:1]
	n.passes(2*patience+3, 2*patience+4)
	if len(n.refused) != 0 {
		t.Errorf("remembered: %v", n.refused)
	}
}

// One of two that have a log does not tell that: what it writes to keeps its name, whether it can reopen its log or not.
func TestOneThatDoesNotTellItsLog(t *testing.T) {
	for _, closed := range []bool{true, false} {
		n := newNode(t)
		n.container("other", "")
		o := &odd{Runtime: n.Runtime, id: "other", mute: true, closed: closed}
		n.Runtime = o
		n.write("0.log", large("x"))
		path := filepath.Join(n.dir, "0.log")
		held, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0) // what it writes to
		if err != nil {
			t.Fatal(err)
		}
		n.Runtime = reopens{o, func() {
			if held.Close(); err == nil {
				held, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
			}
		}}
		for i := range patience - 1 {
			rotated := n.passes(i, i+1)
			var st unix.Stat_t
			if e := errors.Join(err, unix.Fstat(int(held.Fd()), &st)); e != nil || st.Nlink != 1 || closed != (rotated == 0) {
				t.Errorf("closed %v, pass %d: its file has %d names, rotated %d; %v", closed, i, st.Nlink, rotated, e)
			}
		}
		if got := n.passes(patience, patience+2); got != 2 {
			t.Errorf("closed %v: rotated %d of 2 times", closed, got)
		}
		held.Close()
	}
}

// reopens does what the runtime does for the odd one.
type reopens struct {
	*odd
	reopen func()
}

func (r reopens) ReopenContainerLog(ctx context.Context, id string) error {
	err := r.odd.ReopenContainerLog(ctx, id)
	if err == nil && id == r.id {
		r.reopen()
	}
	return err
}
