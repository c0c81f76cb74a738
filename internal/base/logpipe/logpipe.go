// Package logpipe keeps logging from blocking the agent. In a container stderr is a pipe that the
// runtime reads. If the runtime hangs, the pipe fills up, and the next write would block its
// caller, for example the loop.
package logpipe

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"jettison/internal/base/retry"
)

// lines is the capacity of the queue. With 1 KiB a line it is 256 KiB; the agent logs a few lines
// for an eviction.
const lines = 256

// Writer passes each Write to a goroutine that writes it to out. It never blocks: it drops lines
// that do not fit, and writes a line with their number as soon as there is space. The caller must
// Close it.
type Writer struct {
	out    io.Writer
	format func(text string) []byte // formats a line about dropped ones
	queue  chan []byte
	done   chan struct{}

	mu      sync.Mutex
	dropped int // since the last line about dropped ones
	lost    atomic.Uint64
	closed  bool // further lines are discarded
}

// New starts a Writer. format formats a text of the Writer as a line of the log.
func New(out io.Writer, format func(text string) []byte) *Writer {
	w := &Writer{out: out, format: format, queue: make(chan []byte, lines), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for line := range w.queue {
			_, _ = w.out.Write(line)
		}
	}()
	return w
}

// Write queues one line. It always reports success, because no caller can handle the loss.
func (w *Writer) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return len(line), nil
	}
	if w.dropped > 0 {
		select {
		case w.queue <- w.format(fmt.Sprintf("%d log lines dropped, log reader too slow",
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

// Dropped returns the number of dropped lines since the start.
func (w *Writer) Dropped() uint64 { return w.lost.Load() }

// Close waits until all queued lines are written, at most limit: a hanging reader must not block
// the end of the process.
func (w *Writer) Close(limit time.Duration) {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.queue)
	}
	w.mu.Unlock()
	retry.Await(w.done, limit)
}
