package cri

import (
	"context"
	"errors"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ReopenContainerLog makes the runtime close a container's log and open its path again, after the
// file was renamed. It fails for a container that is not running (runtime/v1 api.proto;
// containerd's message differs), and with ErrNotFound for an unknown one. Even after an error the
// runtime may have reopened the log and written to the new file.
func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	_, err := c.runtime.ReopenContainerLog(ctx, &runtimev1.ReopenContainerLogRequest{ContainerId: id})
	err = c.link.wrap("reopen log of container "+id+" at", err)
	if err == nil || errors.Is(err, ErrNotFound) || ctx.Err() != nil {
		return err
	}
	// CRI-O returns the code Unknown for an unknown container (1.37 server/container_reopen_log.go).
	if _, gone := c.ContainerStatus(ctx, id); errors.Is(gone, ErrNotFound) {
		return gone
	}
	return err
}
