// Package eventlog keeps the last lines of the agent's log for clients that follow them. Logging
// never waits for a reader: a reader that is too slow loses events.
//
//	ring.go     Ring: the last events, bounded
//	handler.go  NewHandler: a log handler that fills a Ring
package eventlog

import (
	"sync"
	"time"
)

// Bounds of a Ring. An ordinary event has 400 bytes, an eviction with its ranking 3 KiB.
const (
	maxEvents = 128
	maxBytes  = 64 << 10
	maxLine   = 16 << 10 // of one event; a longer one is kept without its fields
)

// Ring keeps the last events. It is safe for concurrent use, and readers never block a writer.
type Ring struct {
	mu    sync.Mutex
	lines [][]byte // oldest first, without the seq. A line never changes
	first uint64   // seq of the oldest
	bytes int
	more  chan struct{} // closed at the next event; nil: no reader waits
}

// NewRing returns an empty Ring. Sequence numbers start with the time in microseconds since 1970,
// so that they grow from one process to the next.
func NewRing(now time.Time) *Ring { return &Ring{first: uint64(max(now.UnixMicro(), 1))} }

// add appends an event and drops the oldest ones beyond the bounds.
func (r *Ring) add(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	r.bytes += len(line)
	drop := 0
	for len(r.lines)-drop > maxEvents || r.bytes > maxBytes {
		r.bytes -= len(r.lines[drop])
		r.lines[drop] = nil
		drop++
	}
	r.lines, r.first = r.lines[drop:], r.first+uint64(drop)
	if r.more != nil {
		close(r.more)
		r.more = nil
	}
}

// Batch holds the events after a sequence number.
type Batch struct {
	First uint64   // seq of the first line, or of the next event if there are no lines
	Lines [][]byte // one event each, without its seq: see Append
	Lost  bool     // earlier events were dropped
	// More is closed when a newer event exists.
	More <-chan struct{}
}

// After returns the events after seq; 0: all. A seq that is not yet reached belongs to an earlier
// process, so all events are newer.
func (r *Ring) After(seq uint64) Batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.more == nil {
		r.more = make(chan struct{})
	}
	next := r.first + uint64(len(r.lines))
	b := Batch{First: r.first, More: r.more}
	switch {
	case seq == 0:
	case seq+1 < r.first || seq >= next:
		b.Lost = true
	default:
		b.First = seq + 1
	}
	b.Lines = append(b.Lines, r.lines[b.First-r.first:]...)
	return b
}
