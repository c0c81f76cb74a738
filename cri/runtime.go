package cri

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version is the name and version of the runtime.
type Version struct{ Name, Version string }

// Version requests the name and version of the runtime. Call it first: it distinguishes a missing
// runtime from a socket that does not serve the CRI (ErrNotCRI).
func (c *Client) Version(ctx context.Context) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	res, err := c.runtime.Version(ctx, &runtimev1.VersionRequest{})
	if err != nil {
		return Version{}, c.link.wrap("get version of", err)
	}
	return Version{Name: res.GetRuntimeName(), Version: res.GetRuntimeVersion()}, nil
}

// Condition is a condition of the runtime. Every runtime reports the Types RuntimeReady and
// NetworkReady (runtime/v1 api.proto); other types are for people.
type Condition struct {
	Type            string
	Status          bool
	Reason, Message string // why the condition is false; often empty if it is true
}

// Status requests the conditions of the runtime, in its order.
func (c *Client) Status(ctx context.Context) ([]Condition, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	res, err := c.runtime.Status(ctx, &runtimev1.StatusRequest{})
	if err != nil {
		return nil, c.link.wrap("get status of", err)
	}
	var out []Condition
	for _, r := range res.GetStatus().GetConditions() {
		if r.GetType() != "" {
			out = append(out, Condition{Type: r.GetType(), Status: r.GetStatus(), Reason: r.GetReason(),
				Message: r.GetMessage()})
		}
	}
	return out, nil
}

// PeerPID returns the process that listens on the runtime's socket; 0: unknown. With socket activation
// it is process 1.
func (c *Client) PeerPID() (pid int) {
	conn, err := net.DialTimeout("unix", strings.TrimPrefix(c.link.endpoint, "unix://"), time.Second)
	if err != nil {
		return 0
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}

// CgroupDriver requests the runtime's cgroup driver: "systemd" or "cgroupfs". It returns
// ErrUnimplemented for a runtime that does not report it (containerd before 2.0).
func (c *Client) CgroupDriver(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	res, err := c.runtime.RuntimeConfig(ctx, &runtimev1.RuntimeConfigRequest{})
	if err != nil {
		return "", c.link.wrapOptional("get cgroup driver of", err)
	}
	if res.GetLinux() == nil {
		return "", fmt.Errorf("get cgroup driver of runtime %s: %w: its configuration has no Linux part",
			c.link.endpoint, ErrUnimplemented)
	}
	switch driver := res.GetLinux().GetCgroupDriver(); driver {
	case runtimev1.CgroupDriver_SYSTEMD:
		return "systemd", nil
	case runtimev1.CgroupDriver_CGROUPFS:
		return "cgroupfs", nil
	default:
		return "", fmt.Errorf("get cgroup driver of runtime %s: unknown driver %v", c.link.endpoint,
			driver)
	}
}
