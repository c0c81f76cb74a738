package cri

import (
	"context"
	"errors"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// anySandboxes lists all sandboxes. A pod may have 256 KiB of annotations, which each of its sandboxes repeats, those of finished pods too:
// 65 of them are more than maxMessage. What is too large for one answer is listed in parts, which is never ErrTooLarge: those that are
// ready, those that are not, and of a part that is still too large those that containers name, one by one. One without any container is
// left out then: it runs nothing. So are those that have ended and for which there is no time.
func (c *Client) anySandboxes(ctx context.Context) ([]PodSandbox, error) {
	out, err := c.listSandboxes(ctx, nil, nil)
	if !errors.Is(err, ErrTooLarge) {
		return out, err
	}
	p := largePods{c: c, seen: map[string]bool{}}
	ready, err := p.state(ctx, runtimev1.PodSandboxState_SANDBOX_READY)
	if err == nil && !ready {
		err = p.named(ctx, runtimev1.ContainerState_CONTAINER_RUNNING, runtimev1.ContainerState_CONTAINER_CREATED,
			runtimev1.ContainerState_CONTAINER_UNKNOWN)
	}
	if err != nil {
		return nil, err
	}
	// What has ended may be tens of thousands, and must not take the time of the rest.
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	over, err := p.state(ctx, runtimev1.PodSandboxState_SANDBOX_NOTREADY)
	if err == nil && (!over || !ready) {
		err = p.named(ctx, runtimev1.ContainerState_CONTAINER_EXITED)
	}
	if err != nil && ctx.Err() == nil {
		return nil, err
	}
	return p.out, nil
}

// largePods are sandboxes that are listed in parts.
type largePods struct {
	c    *Client
	out  []PodSandbox
	seen map[string]bool // ids in out, and those asked for
}

// state lists those of one state. false: they are too large for one answer, too.
func (p *largePods) state(ctx context.Context, state runtimev1.PodSandboxState) (whole bool, err error) {
	items, err := p.c.listSandboxes(ctx, &runtimev1.PodSandboxFilter{State: &runtimev1.PodSandboxStateValue{State: state}},
		func(s *PodSandbox) bool { // a runtime may not have filtered
			return s.Ready == (state == runtimev1.PodSandboxState_SANDBOX_READY) && !p.seen[s.ID]
		})
	if err != nil {
		if errors.Is(err, ErrTooLarge) {
			err = nil
		}
		return false, err
	}
	for i := range items {
		p.seen[items[i].ID] = true
	}
	p.out = append(p.out, items...)
	return true, nil
}

// named lists those that containers of some states name, one by one.
func (p *largePods) named(ctx context.Context, states ...runtimev1.ContainerState) error {
	var ids []string
	for _, state := range states {
		filter := &runtimev1.ContainerFilter{State: &runtimev1.ContainerStateValue{State: state}}
		_, err := p.c.listContainers(ctx, filter, func(one *Container) bool {
			if !p.seen[one.SandboxID] && one.SandboxID != "" {
				p.seen[one.SandboxID] = true
				ids = append(ids, one.SandboxID)
			}
			return false
		})
		if err != nil && !errors.Is(err, ErrTooLarge) {
			return err
		}
	}
	for _, id := range ids {
		items, err := p.c.listSandboxes(ctx, &runtimev1.PodSandboxFilter{Id: id}, func(s *PodSandbox) bool { return s.ID == id })
		if err != nil && !errors.Is(err, ErrTooLarge) {
			return err
		}
		p.out = append(p.out, items...)
	}
	return nil
}
