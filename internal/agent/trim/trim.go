// Package trim returns memory that the heap does not need to the kernel while nothing is short. A
// list of the runtime's pods or a garbage collection pass uses most of it for a moment; the Go
// runtime on its own would keep it for minutes.
package trim

import (
	"runtime/debug"
	"sync"
	"time"
)

// Intervals between two returns of memory: after a large use, and without one.
const (
	minInterval = 10 * time.Second
	interval    = time.Minute
)

// Trimmer belongs to the loop. The zero value is ready to use; call Wait at the end.
type Trimmer struct {
	at   time.Time // when memory was last returned
	used bool      // a lot of memory was used since

	running sync.WaitGroup // of FreeOSMemory, which takes milliseconds
}

// MemoryUsed records that a lot of memory was used for a moment.
func (t *Trimmer) MemoryUsed() { t.used = true }

// Tick returns memory to the kernel if it is due. It is called once a second while nothing is short
// and no eviction is in progress.
func (t *Trimmer) Tick(now time.Time) (gave bool) {
	since := now.Sub(t.at)
	if since < minInterval || !t.used && since < interval {
		return false
	}
	t.at, t.used = now, false
	t.running.Go(debug.FreeOSMemory)
	return true
}

// Wait waits until memory is returned.
func (t *Trimmer) Wait() { t.running.Wait() }
