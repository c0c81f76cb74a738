package agent

import (
	"errors"

	"jettison/cgroup"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/selfprotect"
)

// ownMemory keeps the kernel from reclaiming the agent's own memory. It counts only where the
// cgroups above have as much, and these are raised at the start, or as soon as it is known that
// they may be. A nil one does nothing.
type ownMemory struct {
	fs     *cgroup.FS
	cgroup string // of the agent
	log    *logthrottle.Logger
	above  bool           // the cgroups above are raised, too
	undo   []func() error // in the order in which it was done
}

// tick raises the cgroups above the agent's own once no kubelet is here, whose they would be, and
// no memory of pods is protected there: what is added to that could not be told from it any more.
// What was raised stays until the agent ends: doubt comes when a node is short.
func (o *ownMemory) tick(kubelet, pods bool) {
	if o == nil || o.above || kubelet || pods {
		return
	}
	o.above = true
	o.raise()
}

// raise raises memory.min of the agent's own cgroup, and of those above it.
func (o *ownMemory) raise() {
	undo, refused := selfprotect.Memory(o.fs, o.cgroup, o.above)
	o.undo = append(o.undo, undo)
	for _, err := range refused {
		o.log.Warn("not as it should be", "error", err)
	}
}

// close puts back what was there before, the last step first.
func (o *ownMemory) close() error {
	var errs []error
	for i := len(o.undo) - 1; i >= 0; i-- {
		errs = append(errs, o.undo[i]())
	}
	return errors.Join(errs...)
}
