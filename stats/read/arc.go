package read

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"jettison/stats"
	"jettison/stats/read/procfs"
)

const (
	// arcEvery is the interval between two readings, and arcOften the shortest one.
	arcEvery = time.Second
	arcOften = 100 * time.Millisecond
	// arcLimit is the age from which a reading is reported as missing. Other readers hold the lock of
	// the file, and their cgroups' CPU limits may stop them meanwhile.
	arcLimit = 10 * time.Second
	// arcFirst bounds the wait for the first reading.
	arcFirst = 100 * time.Millisecond
)

// arcReader reads ZFS' cache on a goroutine of its own, because a read may block. A nil arcReader has
// no readings. Its methods are for one goroutine.
type arcReader struct {
	source     *source[arcReading]
	cancel     context.CancelFunc
	workingSet atomic.Uint64 // of the last look
	total      atomic.Uint64 // the node's memory; 0: unknown
	last       stats.Opt[arcReading]
	asked      time.Time // last request for a reading
}

// arcReading is one reading.
type arcReading struct {
	shrinkable uint64
	workingSet uint64 // of the last look before the reading
}

// startARC starts to read, and waits for the first reading, arcFirst at most. It returns nil without
// ZFS.
func startARC(proc *procfs.Proc, m *stats.NodeMemoryStats) *arcReader {
	arc := proc.ARC()
	if arc == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &arcReader{cancel: cancel}
	r.note(m)
	r.source = newSource("ZFS cache", arcEvery, arcLimit, func(context.Context) (out arcReading, err error) {
		out.workingSet = r.workingSet.Load()
		out.shrinkable, err = arc.Shrinkable()
		if total := r.total.Load(); total > 0 && out.shrinkable > total {
			err = errors.New("arcstats: the cache is larger than the node's memory")
		}
		return out, err
	})
	go func() {
		defer arc.Close()
		r.source.run(ctx)
	}()
	first, end := context.WithTimeout(ctx, arcFirst)
	defer end()
	waitClosed(first, r.source.answered)
	return r
}

func (r *arcReader) note(m *stats.NodeMemoryStats) {
	if m.WorkingSetBytes.OK {
		r.workingSet.Store(m.WorkingSetBytes.V)
	}
	if m.CapacityBytes.OK {
		r.total.Store(m.CapacityBytes.V)
	}
}

// shrinkable returns the last reading, less what the working set has grown since then: a leak shrinks
// the cache. The last reading stays while there is no new one, because without the cache the node looks
// short. shrinkable does not wait; it requests the next reading.
func (r *arcReader) shrinkable(now time.Time, m *stats.NodeMemoryStats) (out stats.Opt[uint64]) {
	if r == nil {
		return out
	}
	r.note(m)
	if now.Sub(r.asked) >= arcOften {
		r.asked = now
		r.source.refresh()
	}
	if latest, _ := r.source.get(now); latest.OK {
		r.last = latest
	}
	if r.last.OK {
		in := r.workingSet.Load()
		grown := in - min(r.last.V.workingSet, in)
		out = stats.Some(r.last.V.shrinkable - min(grown, r.last.V.shrinkable))
	}
	return out
}

var errNoARC = errors.New("ZFS' cache could not be read for 10s: its last known size counts")

// err returns an error if there is no reading of the last arcLimit.
func (r *arcReader) err(now time.Time) error {
	if r == nil {
		return nil
	}
	last, _ := r.source.get(now)
	if last.OK {
		return nil
	}
	if err := r.source.lastError(); err != nil {
		return fmt.Errorf("%w: %w", errNoARC, err)
	}
	return errNoARC
}

// close ends the goroutine, after a read that is blocked. It does not wait for it.
func (r *arcReader) close() {
	if r != nil {
		r.cancel()
	}
}
