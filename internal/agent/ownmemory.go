package agent

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"jettison/cgroup"
	"jettison/internal/base/logthrottle"
	"jettison/internal/base/retry"
	"jettison/internal/node/selfprotect"
)

// raiseLimit bounds close's wait for a raise that is blocked in the kernel.
const raiseLimit = time.Second

// ownMemory protects the agent's own memory from reclaim. The protection is effective only if the
// cgroups above have as much; these are raised at start, or as soon as that is known to be safe. A
// nil ownMemory does nothing.
type ownMemory struct {
	fs     *cgroup.FS // owned: close closes it
	cgroup string     // of the agent
	log    *logthrottle.Logger
	above  bool           // the cgroups above the agent's are raised, too
	undo   []func() error // in the order of the changes

	// Notes need the lock of a directory, which a process that creates a cgroup there holds while it
	// allocates. So the loop has a goroutine raise, one at a time.
	raising bool
	results chan raisedMemory // one slot
	raises  sync.WaitGroup
}

// raisedMemory is the result of a raise.
type raisedMemory struct {
	undo    func() error
	refused []error
}

func newOwnMemory(fs *cgroup.FS, own string, above bool, log *logthrottle.Logger) *ownMemory {
	return &ownMemory{fs: fs, cgroup: own, above: above, log: log, results: make(chan raisedMemory, 1)}
}

// tick begins to raise the cgroups above the agent's own as soon as no kubelet owns them and no pods'
// memory is protected there, because the two amounts could not be separated later. The protection then
// stays until the agent ends: a node that is short may raise doubts about a kubelet. tick reports
// whether a raise is in progress. Then no pods' memory may be protected.
func (o *ownMemory) tick(kubelet, pods bool) (raising bool) {
	if o == nil {
		return false
	}
	if !o.raising && !o.above && !kubelet && !pods {
		o.above, o.raising = true, true
		o.raises.Go(func() { o.results <- raiseMemory(o.fs, o.cgroup, true) })
	}
	return o.raising
}

// Results returns the channel of results. It is nil for a nil ownMemory.
func (o *ownMemory) Results() <-chan raisedMemory {
	if o == nil {
		return nil
	}
	return o.results
}

// onResult logs the steps of a raise that failed.
func (o *ownMemory) onResult(r raisedMemory) {
	o.raising = false
	o.undo = append(o.undo, r.undo)
	for _, err := range r.refused {
		o.log.Warn("self-protection incomplete", "error", err)
	}
}

// raise raises memory.min at start, before the loop runs.
func (o *ownMemory) raise() { o.onResult(raiseMemory(o.fs, o.cgroup, o.above)) }

// raiseMemory raises memory.min of the agent's own cgroup, and of those above it if above is set.
func raiseMemory(fs *cgroup.FS, own string, above bool) (r raisedMemory) {
	r.undo, r.refused = selfprotect.Memory(fs, own, above)
	return r
}

// close restores the former values in reverse order. Values that a blocked raise still writes stay, as
// after a crash.
func (o *ownMemory) close() error {
	if !retry.AwaitFunc(o.raises.Wait, raiseLimit) {
		return fmt.Errorf("protect own memory: still blocked in the kernel after %v: %w", raiseLimit,
			os.ErrDeadlineExceeded)
	}
	if o.raising {
		o.onResult(<-o.results)
	}
	var errs []error
	for i := len(o.undo) - 1; i >= 0; i-- {
		errs = append(errs, o.undo[i]())
	}
	o.fs.Close()
	return errors.Join(errs...)
}
