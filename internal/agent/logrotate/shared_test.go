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

// faulty is a runtime that fails for one container.
type faulty struct {
	Runtime
	id                 string
	noStatus, noReopen bool // calls that fail
}

func (f *faulty) ContainerStatus(ctx context.Context, id string) (cri.Container, error) {
	if id == f.id && f.noStatus {
		return cri.Container{}, context.DeadlineExceeded
	}
	return f.Runtime.ContainerStatus(ctx, id)
}

func (f *faulty) ReopenContainerLog(ctx context.Context, id string) error {
	if id == f.id && f.noReopen {
		return errors.New("container is in state UNKNOWN")
	}
	return f.Runtime.ReopenContainerLog(ctx, id)
}

// passes runs passes with a large log at each, and counts the rotations.
func (n *node) passes(from, to int) (rotated int) {
	n.t.Helper()
	for i := from; i < to; i++ {
		n.write("0.log", large("x"))
		r, _ := n.Pass(n.t.Context(), noon.Add(time.Duration(i)*time.Minute), n.list)
		rotated += r.Rotated
	}
	return rotated
}

// One of two containers with the same log cannot reopen it: passes wait for it, but not forever.
func TestContainerThatNeverReopens(t *testing.T) {
	n := newNode(t)
	n.container("other", "/log/pods/"+folder+"/0.log")
	f := &faulty{Runtime: n.Runtime, id: "other", noReopen: true}
	n.Runtime = f
	if got := n.passes(0, maxFailures-1); got != 0 {
		t.Errorf("log rotated %d times before maxFailures, want 0", got)
	}
	if got := n.passes(maxFailures-1, maxFailures+3); got != 4 {
		t.Errorf("log rotated %d times after maxFailures, want 4", got)
	}
	f.noReopen = false
	n.passes(maxFailures+3, maxFailures+4)
	f.noReopen = true
	if got := n.passes(maxFailures+4, 2*maxFailures+3); got != 0 { // a success resets the failures
		t.Errorf("log rotated %d times after a success, want 0", got)
	}
	n.list = n.list[:1]
	n.passes(2*maxFailures+3, 2*maxFailures+4)
	if len(n.failures) != 0 {
		t.Errorf("failures of an ended container = %v, want none", n.failures)
	}
}

// The path of one of two containers with the same log is unknown. Its file keeps its name, whether
// or not it can reopen its log.
func TestContainerWithUnknownLog(t *testing.T) {
	for _, noReopen := range []bool{true, false} {
		n := newNode(t)
		n.container("other", "")
		f := &faulty{Runtime: n.Runtime, id: "other", noStatus: true, noReopen: noReopen}
		n.Runtime = f
		n.write("0.log", large("x"))
		path := filepath.Join(n.dir, "0.log")
		held, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0) // the file it writes to
		if err != nil {
			t.Fatal(err)
		}
		n.Runtime = reopens{f, func() {
			if held.Close(); err == nil {
				held, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
			}
		}}
		for i := range maxFailures - 1 {
			rotated := n.passes(i, i+1)
			var st unix.Stat_t
			if e := errors.Join(err, unix.Fstat(int(held.Fd()), &st)); e != nil || st.Nlink != 1 || noReopen != (rotated == 0) {
				t.Errorf("noReopen %v, pass %d: its file has %d names, rotated %d; %v", noReopen, i, st.Nlink, rotated, e)
			}
		}
		if got := n.passes(maxFailures, maxFailures+2); got != 2 {
			t.Errorf("noReopen %v: rotated %d times after maxFailures, want 2", noReopen, got)
		}
		held.Close()
	}
}

// reopens is a faulty runtime that calls reopen for its container.
type reopens struct {
	*faulty
	reopen func()
}

func (r reopens) ReopenContainerLog(ctx context.Context, id string) error {
	err := r.faulty.ReopenContainerLog(ctx, id)
	if err == nil && id == r.id {
		r.reopen()
	}
	return err
}
