package cri

import (
	"context"
	"fmt"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version is what the runtime calls itself.
type Version struct{ Name, Version string }

// Version asks the runtime for its name and version. It is the first call to make: it tells a
// missing runtime from something that is no CRI (ErrNotCRI).
func (c *Client) Version(ctx context.Context) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	res, err := c.runtime.Version(ctx, &runtimev1.VersionRequest{})
	if err != nil {
		return Version{}, c.link.wrap("ask version of", err)
	}
	return Version{Name: res.GetRuntimeName(), Version: res.GetRuntimeVersion()}, nil
}

// Condition is one thing that the runtime says of itself. RuntimeReady and NetworkReady are the
// Types that every runtime reports (runtime/v1 api.proto); others are for people to read.
type Condition struct {
	Type            string
	Status          bool
	Reason, Message string // why it is not so; often empty when it is
}

// Status asks the runtime for its conditions, in its own order.
func (c *Client) Status(ctx context.Context) ([]Condition, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	res, err := c.runtime.Status(ctx, &runtimev1.StatusRequest{})
	if err != nil {
		return nil, c.link.wrap("ask status of", err)
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

// CgroupDriver asks for the runtime's cgroup driver: "systemd" or "cgroupfs". A runtime that does
// not say (containerd before 2.0) is ErrUnimplemented.
func (c *Client) CgroupDriver(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	res, err := c.runtime.RuntimeConfig(ctx, &runtimev1.RuntimeConfigRequest{})
	if err != nil {
		return "", c.link.wrapOptional("ask cgroup driver of", err)
	}
	if res.GetLinux() == nil {
		return "", fmt.Errorf("ask cgroup driver of runtime %s: %w: its configuration has no Linux part",
			c.link.endpoint, ErrUnimplemented)
	}
	switch driver := res.GetLinux().GetCgroupDriver(); driver {
	case runtimev1.CgroupDriver_SYSTEMD:
		return "systemd", nil
	case runtimev1.CgroupDriver_CGROUPFS:
		return "cgroupfs", nil
	default:
		return "", fmt.Errorf("ask cgroup driver of runtime %s: unknown driver %v", c.link.endpoint,
			driver)
	}
}
