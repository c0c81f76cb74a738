package kube

import (
	"context"
	"os"
	"time"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"

	"jettison/internal/base/terminal"
)

// resizeInterval is the time between two reads of the terminal's size. Not every system has a signal
// for a changed size.
const resizeInterval = 250 * time.Millisecond

// TTY is the terminal of a command in a pod.
type TTY struct {
	ctx     context.Context // of the command
	out     *os.File
	last    remotecommand.TerminalSize
	restore func()
}

// OpenTTY puts the terminal of stdin and stdout into raw mode, so that keys reach the command in the
// pod. ctx is the command's. It returns nil if either is not a terminal. Call Close at the end.
func OpenTTY(ctx context.Context, in, out *os.File) *TTY {
	if in == nil || out == nil || !terminal.Is(in) || !terminal.Is(out) {
		return nil
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil
	}
	return &TTY{ctx: ctx, out: out, restore: func() { _ = term.Restore(int(in.Fd()), state) }}
}

// Close restores the terminal.
func (t *TTY) Close() {
	if t != nil {
		t.restore()
	}
}

// Next waits for another size of the terminal. nil: the command has ended.
func (t *TTY) Next() *remotecommand.TerminalSize {
	for t.ctx.Err() == nil {
		width, height, err := term.GetSize(int(t.out.Fd()))
		size := remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}
		if err == nil && size != t.last {
			t.last = size
			return &size
		}
		select {
		case <-t.ctx.Done():
		case <-time.After(resizeInterval):
		}
	}
	return nil
}
