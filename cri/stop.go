package cri

import (
	"context"
	"errors"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxGrace bounds grace periods: one beyond it is as good as for ever, and still fits with a
// deadline into a Duration.
const maxGrace = 365 * 24 * time.Hour

// StopContainer has the runtime send a container its stop signal, and SIGKILL when the timeout is
// over. The CRI counts seconds: what is between two is rounded up, and what is not above zero kills
// at once. It returns when the container has ended. Like the kubelet it waits 2 minutes longer than
// the timeout (runtimeRequestTimeout; k8s.io/cri-client pkg/remote_runtime.go StopContainer): time
// for the SIGKILL and the clean-up. It may be repeated: a container that has ended, or is gone, is
// no error (runtime/v1 api.proto).
func (c *Client) StopContainer(ctx context.Context, id string, timeout time.Duration) error {
	timeout = min(max(timeout, 0), maxGrace)
	ctx, cancel := context.WithTimeout(ctx, timeout+c.timeouts.change)
	defer cancel()
	seconds := int64((timeout + time.Second - 1) / time.Second)
	_, err := c.runtime.StopContainer(ctx, &runtimev1.StopContainerRequest{ContainerId: id,
		Timeout: seconds})
	if err = c.link.wrap("stop container "+id+" at", err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// StopPodSandbox has the runtime kill what is left of a pod's containers and tear its sandbox down.
// It may be repeated: a sandbox that is stopped, or gone, is no error (runtime/v1 api.proto).
func (c *Client) StopPodSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.stop)
	defer cancel()
	_, err := c.runtime.StopPodSandbox(ctx, &runtimev1.StopPodSandboxRequest{PodSandboxId: id})
	if err = c.link.wrap("stop pod sandbox "+id+" at", err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// RemovePodSandbox has the runtime delete a sandbox with its containers and their writable layers.
// What still runs in it is killed first, by a runtime that keeps to the CRI; containerd may refuse
// while it calls a container running. It may be repeated: a sandbox that is gone is no error
// (runtime/v1 api.proto). It waits as long as the kubelet does (runtimeRequestTimeout): a large
// layer takes time to delete.
func (c *Client) RemovePodSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.change)
	defer cancel()
	_, err := c.runtime.RemovePodSandbox(ctx, &runtimev1.RemovePodSandboxRequest{PodSandboxId: id})
	if err = c.link.wrap("remove pod sandbox "+id+" at", err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Running counts the containers of a sandbox that the runtime calls running. After a kill from
// outside it may still do so for a while, even after StopPodSandbox returned (containerd 2.4).
func (c *Client) Running(ctx context.Context, sandboxID string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	containers, err := c.listContainers(ctx, &runtimev1.ContainerFilter{
		PodSandboxId: sandboxID,
		State:        &runtimev1.ContainerStateValue{State: runtimev1.ContainerState_CONTAINER_RUNNING},
	}, func(c *Container) bool {
		return c.SandboxID == sandboxID && c.Running
	}) // a runtime may not have filtered
	return len(containers), err
}

// ContainersOf lists the containers of a sandbox that have not exited: created, running and unknown
// ones, in the runtime's order, without what only a status tells.
func (c *Client) ContainersOf(ctx context.Context, sandboxID string) (out []Container, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	return c.listContainers(ctx, &runtimev1.ContainerFilter{PodSandboxId: sandboxID},
		func(c *Container) bool {
			return c.SandboxID == sandboxID && c.State != Exited // a runtime may not have filtered
		})
}
