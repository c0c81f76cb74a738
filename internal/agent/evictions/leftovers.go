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

// sandboxShare divides the time for leftovers: the runtime gets 1/sandboxShare of it to delete the
// sandboxes, and the removal of files gets the rest.
const sandboxShare = 3

// unmountShared frees the memory in a dead pod's /dev/shm, also on a node with a kubelet. The mount
// belongs to the runtime. A runtime that did not kill the pod itself may keep the mount until the
// sandbox is removed.
func (c *carrier) unmountShared(v *kill.Victim) {
	if c.host == nil {
		return
	}
	for _, id := range v.Sandboxes() {
		bytes, err := c.remove.SharedMemory(id)
		switch {
		case err != nil:
			//log: The shared memory (/dev/shm) of a dead pod could not be unmounted, so its memory stays in
			//  use.
			//do: See the key error. Unmount it by hand or remove the pod's sandbox.
			c.log.Error("unmount of pod shared memory failed", append(fieldsOf(v, "bytes", bytes),
				api.EventEviction.Attr(),
				"error", err)...)
		case bytes > 0:
			//log: The agent unmounted the shared memory (/dev/shm) of a dead pod, which freed the given
			//  bytes.
			c.log.Info("unmounted pod shared memory", append(fieldsOf(v, "bytes", bytes),
				api.EventEviction.Attr())...)
		}
	}
}

// unmountVolumes frees the memory in a dead pod's volumes. Without a kubelet only the agent can do
// that; otherwise it would evict another pod for this memory.
func (c *carrier) unmountVolumes(ctx context.Context, v *kill.Victim) {
	if c.host == nil || v.Back(ctx, c.client) != nil {
		return
	}
	bytes, err := c.remove.MemoryVolumes(ctx, v.Pod.UID)
	switch {
	case err != nil:
		//log: Volumes in memory (tmpfs, such as an emptyDir with medium Memory) of a dead pod could not
		//  be unmounted.
		//do: To free their memory, unmount the path in the key error: umount PATH.
		c.log.Error("unmount of pod memory volumes failed", append(fieldsOf(v, "bytes", bytes),
			api.EventEviction.Attr(),
			"error", err)...)
	case bytes > 0:
		//log: The agent unmounted the volumes in memory of a dead pod, which freed the given bytes.
		c.log.Info("unmounted pod memory volumes", append(fieldsOf(v, "bytes", bytes),
			api.EventEviction.Attr())...)
	}
}

// removeFiles removes a dead pod's leftovers on disk. A failure is logged and does not stop the
// rest. A sandbox that the runtime cannot delete is already stopped, and its deletion uses only its
// share of the time.
func (c *carrier) removeFiles(ctx context.Context, v *kill.Victim) {
	ctx, cancel := context.WithTimeout(ctx, eviction.RemoveLimit)
	defer cancel()
	back := func() error { return c.shared(ctx, v) }
	if c.host != nil {
		_ = c.remove.MoveVolumesAside(v.Pod.UID, back) // removeDirs reports the error again
	}
	deadline, _ := ctx.Deadline()
	removing, stop := context.WithTimeout(ctx, time.Until(deadline)/sandboxShare)
	errs := []error{v.Remove(removing, c.client)}
	stop()
	freed, err := c.removeDirs(ctx, v, back)
	if errs = append(errs, err); errors.Is(err, kill.ErrBack) || errors.Is(err, errKubelet) {
		errs = append(errs, errors.New("logs and volumes of the pod are kept"))
	}
	fields := fieldsOf(v, "logsAndVolumes", freed)
	if err := errors.Join(errs...); err != nil {
		//log: Some leftovers of an evicted pod (sandboxes, logs, volumes) are still on disk.
		//do: See the key error. Remove the rest by hand if it stays.
		c.log.Error("pod leftovers not fully removed",
			append(fields, api.EventEviction.Attr(), "error", err)...)
		return
	}
	//log: The agent removed the sandboxes, logs and volumes of an evicted pod.
	c.log.Info("removed pod leftovers", append(fields, api.EventEviction.Attr())...)
}

var errKubelet = errors.New("kubelet detected: it removes the leftovers of pods")

// shared returns why the files under the pod's UID, logs and volumes, no longer belong to the
// victim alone: the pod is back, or a kubelet runs.
func (c *carrier) shared(ctx context.Context, v *kill.Victim) error {
	if c.kubeletNow != nil && c.kubeletNow() {
		return errKubelet
	}
	return v.Back(ctx, c.client)
}

// removeDirs removes a pod's logs and volumes; if the pod is back, only the files that were moved
// away before.
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

func fieldsOf(v *kill.Victim, more ...any) []any {
	return append([]any{"pod", v.Pod.Namespace + "/" + v.Pod.Name, "uid", v.Pod.UID}, more...)
}
