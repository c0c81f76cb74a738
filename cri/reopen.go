package cri

import (
	"context"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ReopenContainerLog has the runtime close a container's log and open its path anew, after the file
// was renamed. A container that does not run is an error (runtime/v1 api.proto; containerd's words
// differ), one that the runtime does not know is ErrNotFound. When it fails the runtime may have
// reopened the log all the same, and written to the new one.
func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	_, err := c.runtime.ReopenContainerLog(ctx, &runtimev1.ReopenContainerLogRequest{ContainerId: id})
	return c.link.wrap("reopen log of container "+id+" at", err)
}
