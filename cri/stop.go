package cri

import (
	"context"
	"errors"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxGrace limits grace periods, so that the sum with a timeout fits into a Duration.
const maxGrace = 365 * 24 * time.Hour

// StopContainer makes the runtime send a container its stop signal, and SIGKILL after the timeout.
// The CRI counts seconds: fractions are rounded up, and a timeout of 0 or less kills immediately.
// It returns when the container has ended. Like the kubelet it waits 2 minutes longer than the
// timeout (runtimeRequestTimeout; k8s.io/cri-client pkg/remote_runtime.go StopContainer) for the
// SIGKILL and the clean-up. The call may be repeated: an ended or missing container is no error
// (runtime/v1 api.proto).
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

// StopPodSandbox makes the runtime kill a pod's remaining containers and stop its sandbox. The call
// may be repeated: a stopped or missing sandbox is no error (runtime/v1 api.proto).
func (c *Client) StopPodSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.stop)
	defer cancel()
	_, err := c.runtime.StopPodSandbox(ctx, &runtimev1.StopPodSandboxRequest{PodSandboxId: id})
	if err = c.link.wrap("stop pod sandbox "+id+" at", err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// RemovePodSandbox makes the runtime delete a sandbox with its containers and their writable
// layers. A runtime that follows the CRI first kills running containers; containerd may reject the
// call while it lists a container as running. The call may be repeated: a missing sandbox is no
// error (runtime/v1 api.proto). Its timeout is the kubelet's (runtimeRequestTimeout), because
// deleting a large layer takes time.
func (c *Client) RemovePodSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.change)
	defer cancel()
	_, err := c.runtime.RemovePodSandbox(ctx, &runtimev1.RemovePodSandboxRequest{PodSandboxId: id})
	if err = c.link.wrap("remove pod sandbox "+id+" at", err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Running counts the containers of a sandbox that the runtime lists as running. After a kill by
// another process the runtime may list them as running for a while, even after StopPodSandbox has
// returned (containerd 2.4).
func (c *Client) Running(ctx context.Context, sandboxID string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	containers, err := c.listContainers(ctx, &runtimev1.ContainerFilter{
		PodSandboxId: sandboxID,
		State:        &runtimev1.ContainerStateValue{State: runtimev1.ContainerState_CONTAINER_RUNNING},
	}, func(c *Container) bool {
		return c.SandboxID == sandboxID && c.Running
	}) // the runtime may ignore the filter
	return len(containers), err
}

// ContainersOf lists the containers of a sandbox that have not exited: created, running and unknown
// ones, in the runtime's order, without details from a status.
func (c *Client) ContainersOf(ctx context.Context, sandboxID string) (out []Container, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	return c.listContainers(ctx, &runtimev1.ContainerFilter{PodSandboxId: sandboxID},
		func(c *Container) bool {
			return c.SandboxID == sandboxID && c.State != Exited // the runtime may ignore the filter
		})
}
