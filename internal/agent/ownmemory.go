package agent

import (
	"errors"

	"jettison/cgroup"
	"jettison/internal/base/logthrottle"
	"jettison/internal/node/selfprotect"
)

// ownMemory protects the agent's own memory from reclaim. The protection is effective only if the
// cgroups above have as much; these are raised at start, or as soon as that is known to be safe. A
// nil ownMemory does nothing.
type ownMemory struct {
	fs     *cgroup.FS
	cgroup string // of the agent
	log    *logthrottle.Logger
	above  bool           // the cgroups above are raised, too
	undo   []func() error // in the order of the changes
}

// tick raises the cgroups above the agent's own as soon as no kubelet owns them and no pods' memory
// is protected there, because the two amounts could not be separated later. The protection then
// stays until the agent ends: a node that is short may raise doubts about a kubelet.
func (o *ownMemory) tick(kubelet, pods bool) {
	if o == nil || o.above || kubelet || pods {
		return
	}
	o.above = true
	o.raise()
}

// raise raises memory.min of the agent's own cgroup, and of those above it if above is set.
func (o *ownMemory) raise() {
	undo, refused := selfprotect.Memory(o.fs, o.cgroup, o.above)
	o.undo = append(o.undo, undo)
	for _, err := range refused {
		o.log.Warn("self-protection incomplete", "error", err)
	}
}

// close restores the former values in reverse order.
func (o *ownMemory) close() error {
	var errs []error
	for i := len(o.undo) - 1; i >= 0; i-- {
		errs = append(errs, o.undo[i]())
	}
	return errors.Join(errs...)
}
