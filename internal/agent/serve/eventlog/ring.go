// Package eventlog keeps the last lines of the agent's log for those who want to see what it does.
// Whatever logs, adds; whoever reads, reads at its own pace, and one that is too slow misses what
// it was too slow for.
//
//	ring.go     Ring: the last events, bounded
//	handler.go  NewHandler: a log that fills a Ring
package eventlog

import (
	"sync"
	"time"
)

// Bounds of what is kept. An ordinary event has 400 bytes, an eviction with its ranking 3 KiB.
const (
	maxEvents = 512
	maxBytes  = 256 << 10
	maxLine   = 16 << 10 // of one event; one with more is kept without its fields
)

// Ring keeps the last events. It is safe for concurrent use, and no reader holds up a writer.
type Ring struct {
	mu    sync.Mutex
	lines [][]byte // oldest first, without the seq. A line is never changed
	first uint64   // seq of the oldest
	bytes int
	more  chan struct{} // closed at the next event; nil: nobody waits for it
}

// NewRing makes a Ring without events. Its numbers begin with the time, in microseconds since 1970,
// so that they grow from one process to the next.
func NewRing(now time.Time) *Ring { return &Ring{first: uint64(max(now.UnixMicro(), 1))} }

// add keeps an event.
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

// Batch is what came after an event.
type Batch struct {
	First uint64   // seq of the first line, or of the next event if there is none
	Lines [][]byte // one event each, without its seq: see Append
	Lost  bool     // others came before these that are not kept any more
	// More is closed when there is a newer event than these.
	More <-chan struct{}
}

// After are the events after the one with a seq, 0: all. A seq that is still to come is of another
// time, and all have come since.
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
