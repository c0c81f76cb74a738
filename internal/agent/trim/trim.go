// Package trim gives memory that the heap does not need back to the kernel, while nothing is short.
// A list of the runtime's pods or a pass of garbage collection takes most of it for a moment; the
// Go runtime by itself would keep it for minutes.
package trim

import (
	"runtime/debug"
	"sync"
	"time"
)

// Between two times that memory is given back: after something has taken a lot, and without that.
const (
	soonest = 10 * time.Second
	every   = time.Minute
)

// Trimmer belongs to the loop. The zero value is ready; Wait for it at the end.
type Trimmer struct {
	at    time.Time // when memory was last given back
	taken bool      // something has taken a lot of it since

	beside sync.WaitGroup // of FreeOSMemory, which takes milliseconds
}

// Taken tells that a lot of memory was used for a moment.
func (t *Trimmer) Taken() { t.taken = true }

// Tick gives memory back where it is time to. It is called once a second while nothing is short and
// no pod is being evicted.
func (t *Trimmer) Tick(now time.Time) (gave bool) {
	since := now.Sub(t.at)
	if since < soonest || !t.taken && since < every {
		return false
	}
	t.at, t.taken = now, false
	t.beside.Go(debug.FreeOSMemory)
	return true
}

// Wait waits until memory that is being given back is.
func (t *Trimmer) Wait() { t.beside.Wait() }
