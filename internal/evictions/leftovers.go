package evictions

import (
	"context"
	"errors"
	"time"

	"jettison/eviction"
	"jettison/internal/kill"
)

// unmountShared gives back the memory that lies in a dead pod's /dev/shm. Beside a kubelet, too: it is the runtime's, and a runtime that
// did not kill the pod itself may keep it until the sandbox is removed.
func (c *carrier) unmountShared(v *kill.Victim) {
	if c.host == nil {
		return
	}
	for _, id := range v.Sandboxes() {
		bytes, err := c.remove.SharedMemory(id)
		switch {
		case err != nil:
			c.log.Error("a pod's shared memory could not be unmounted", append(fieldsOf(v, "bytes", bytes), "error", err)...)
		case bytes > 0:
			c.log.Info("unmounted a pod's shared memory", fieldsOf(v, "bytes", bytes)...)
		}
	}
}

// unmountVolumes gives back the memory that lies in a dead pod's volumes. Without a kubelet nothing else does, and the next pod would go
// for it.
func (c *carrier) unmountVolumes(ctx context.Context, v *kill.Victim, began time.Time) {
	if c.host == nil {
		return
	}
	all, err := c.client.SandboxesOf(ctx, v.Pod.UID, time.Now())
	before, err2 := c.client.SandboxesOf(ctx, v.Pod.UID, began)
	if err = errors.Join(err, err2); err != nil || len(all) > len(before) { // the pod is back, and with it its volumes are in use
		return
	}
	bytes, err := c.remove.MemoryVolumes(ctx, v.Pod.UID)
	switch {
	case err != nil:
		c.log.Error("not all volumes in memory could be unmounted", append(fieldsOf(v, "bytes", bytes), "error", err)...)
	case bytes > 0:
		c.log.Info("unmounted a pod's volumes in memory", fieldsOf(v, "bytes", bytes)...)
	}
}

// removeFiles gives back what a dead pod leaves on disk. What cannot be removed is logged; the rest is gone all the same.
func (c *carrier) removeFiles(ctx context.Context, v *kill.Victim) {
	ctx, cancel := context.WithTimeout(ctx, eviction.RemoveLimit)
	defer cancel()
	errs := []error{v.Remove(ctx, c.client)}
	// The pod may be back under its UID, and with it its logs and volumes are in use.
	ids, err := c.client.SandboxesOf(ctx, v.Pod.UID, time.Now())
	if errs = append(errs, err); len(ids) > 0 {
		errs = append(errs, errors.New("the pod is back: its logs and volumes stay"))
	}
	var freed uint64
	if c.host != nil && err == nil && len(ids) == 0 {
		if v.Pod.Name != "" {
			logs, err := c.remove.Logs(ctx, v.Pod)
			errs, freed = append(errs, err), logs.Bytes
		}
		volumes, err := c.remove.Volumes(ctx, v.Pod.UID)
		errs, freed = append(errs, err), freed+volumes.Bytes
	}
	fields := fieldsOf(v, "logsAndVolumes", freed)
	if err := errors.Join(errs...); err != nil {
		c.log.Error("not everything that a pod left on disk could be removed", append(fields, "error", err)...)
		return
	}
	c.log.Info("removed what a pod left on disk", fields...)
}

func fieldsOf(v *kill.Victim, what string, bytes uint64) []any {
	return []any{"pod", v.Pod.Namespace + "/" + v.Pod.Name, "uid", v.Pod.UID, what, bytes}
}
