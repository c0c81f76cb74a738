// Package logpipe keeps logging from blocking the agent. In a container stderr is a pipe that the
// runtime empties; a runtime that hangs stops doing so, and the write that finds the pipe full
// would hang its caller, the loop above all.
package logpipe

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"jettison/internal/base/retry"
)

// lines that wait to be written. At a line of a KiB that is 256 KiB, and the agent logs a few lines
// an eviction.
const lines = 256

// Writer hands each Write to a goroutine that writes it on. It never blocks: what does not fit is
// dropped, and how much was is said in a line of its own as soon as there is room. Close it.
type Writer struct {
	out   io.Writer
	say   func(text string) []byte // a line of the Writer's own
	queue chan []byte
	done  chan struct{}

	mu      sync.Mutex
	dropped int // since it was last said
	lost    atomic.Uint64
	closed  bool // no Write goes to the queue any more
}

// New starts a Writer. say makes a line of the Writer's own, in the log's format.
func New(out io.Writer, say func(text string) []byte) *Writer {
	w := &Writer{out: out, say: say, queue: make(chan []byte, lines), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for line := range w.queue {
			_, _ = w.out.Write(line)
		}
	}()
	return w
}

// Write queues one line. It always reports success: no caller could do anything about it.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return len(line), nil
	}
	if w.dropped > 0 {
		select {
		case w.queue <- w.say(fmt.Sprintf("%d log lines were dropped: the reader of the log was too slow",
			w.dropped)):
			w.dropped = 0
		default:
		}
	}
	select {
	case w.queue <- append([]byte(nil), line...):
	default:
		w.dropped++
		w.lost.Add(1)
	}
	return len(line), nil
}

// Dropped is how many lines were since the start.
func (w *Writer) Dropped() uint64 { return w.lost.Load() }

// Close waits until everything that was queued is written, but no longer than limit: a reader that
// hangs must not keep the process from ending.
func (w *Writer) Close(limit time.Duration) {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.queue)
	}
	w.mu.Unlock()
	retry.Await(w.done, limit)
}
