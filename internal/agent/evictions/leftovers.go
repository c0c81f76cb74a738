package evictions

import (
	"context"
	"errors"
	"time"

	"jettison/api"
	"jettison/eviction"
	"jettison/internal/node/kill"
	"jettison/internal/node/podfiles"
)

// sandboxShare of the time for what a pod leaves, one in so many, is at most for the runtime to
// delete its sandboxes: the files need the rest.
const sandboxShare = 3

// unmountShared gives back the memory that lies in a dead pod's /dev/shm. Beside a kubelet, too: it
// is the runtime's, and a runtime that did not kill the pod itself may keep it until the sandbox is
// removed.
func (c *carrier) unmountShared(v *kill.Victim) {
	if c.host == nil {
		return
	}
	for _, id := range v.Sandboxes() {
		bytes, err := c.remove.SharedMemory(id)
		switch {
		case err != nil:
			c.log.Error("a pod's shared memory could not be unmounted", append(fieldsOf(v, "bytes", bytes),
				api.EventEviction.Attr(),
				"error", err)...)
		case bytes > 0:
			c.log.Info("unmounted a pod's shared memory", append(fieldsOf(v, "bytes", bytes),
				api.EventEviction.Attr())...)
		}
	}
}

// unmountVolumes gives back the memory that lies in a dead pod's volumes. Without a kubelet nothing
// else does, and the next pod would go for it.
func (c *carrier) unmountVolumes(ctx context.Context, v *kill.Victim) {
	if c.host == nil || v.Back(ctx, c.client) != nil {
		return
	}
	bytes, err := c.remove.MemoryVolumes(ctx, v.Pod.UID)
	switch {
	case err != nil:
		c.log.Error("not all volumes in memory could be unmounted", append(fieldsOf(v, "bytes", bytes),
			api.EventEviction.Attr(),
			"error", err)...)
	case bytes > 0:
		c.log.Info("unmounted a pod's volumes in memory", append(fieldsOf(v, "bytes", bytes),
			api.EventEviction.Attr())...)
	}
}

// removeFiles gives back what a dead pod leaves on disk. What cannot be removed is logged; the rest
// is gone all the same: a sandbox that the runtime does not delete was stopped at least, and has
// its part of the time only.
func (c *carrier) removeFiles(ctx context.Context, v *kill.Victim) {
	ctx, cancel := context.WithTimeout(ctx, eviction.RemoveLimit)
	defer cancel()
	back := func() error { return c.shared(ctx, v) }
	if c.host != nil {
		_ = c.remove.SetAside(v.Pod.UID, back) // what is wrong with that shows again below
	}
	deadline, _ := ctx.Deadline()
	removing, stop := context.WithTimeout(ctx, time.Until(deadline)/sandboxShare)
	errs := []error{v.Remove(removing, c.client)}
	stop()
	freed, err := c.removeDirs(ctx, v, back)
	if errs = append(errs, err); errors.Is(err, kill.ErrBack) || errors.Is(err, errKubelet) {
		errs = append(errs, errors.New("its logs and volumes stay"))
	}
	fields := fieldsOf(v, "logsAndVolumes", freed)
	if err := errors.Join(errs...); err != nil {
		c.log.Error("not everything that a pod left on disk could be removed",
			append(fields, api.EventEviction.Attr(), "error", err)...)
		return
	}
	c.log.Info("removed what a pod left on disk", append(fields, api.EventEviction.Attr())...)
}

var errKubelet = errors.New("a kubelet has come, and removes what pods leave")

// shared says why what is under the pod's UID, logs and volumes, is not the victim's alone any
// more: the pod is back, or a kubelet there.
func (c *carrier) shared(ctx context.Context, v *kill.Victim) error {
	if c.kubelet != nil && c.kubelet() {
		return errKubelet
	}
	return v.Back(ctx, c.client)
}

// removeDirs removes a pod's logs and volumes; of a pod that is back only what was put aside.
func (c *carrier) removeDirs(ctx context.Context, v *kill.Victim, back func() error) (freed uint64,
	err error) {
	err = back()
	if c.host == nil {
		return 0, err
	}
	var logsErr error
	if err == nil && v.Pod.Name != "" {
		var logs podfiles.Result
		logs, logsErr = c.remove.Logs(ctx, v.Pod)
		freed = logs.Bytes
	}
	volumes, err := c.remove.Volumes(ctx, v.Pod.UID, back)
	return freed + volumes.Bytes, errors.Join(logsErr, err)
}

func fieldsOf(v *kill.Victim, what string, bytes uint64) []any {
	return []any{"pod", v.Pod.Namespace + "/" + v.Pod.Name, "uid", v.Pod.UID, what, bytes}
}
