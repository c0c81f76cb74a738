package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// aliveStates are those of containers that may run, in the order that a life has: one that goes on
// to the next while it is asked for one after the other is told twice, never not at all.
var aliveStates = []ContainerState{Created, Running, Unknown}

// inState is a filter; an empty id stands for all sandboxes.
func inState(sandboxID string, state ContainerState) *runtimev1.ContainerFilter {
	return &runtimev1.ContainerFilter{
		PodSandboxId: sandboxID, State: &runtimev1.ContainerStateValue{State: runtimev1.ContainerState(
			state)},
	}
}

// alive lists the containers that have not exited, in all sandboxes.
func (c *Client) alive(ctx context.Context) (out []Container, err error) {
	seen := map[string]bool{}
	for _, state := range aliveStates {
		items, err := c.listContainers(ctx, inState("", state), func(one *Container) bool {
			return one.State == state && !seen[one.ID] // a runtime may not have filtered
		})
		if err != nil {
			return nil, err
		}
		for i := range items {
			seen[items[i].ID] = true
		}
		out = append(out, items...)
	}
	return out, nil
}

// Alive lists the sandboxes that are ready, and then the containers of all sandboxes that have not
// exited, without what only a status tells. However many are dead, it costs four calls. Where those
// are more than the runtime tells in one answer it is ErrTooLarge.
func (c *Client) Alive(ctx context.Context) (sandboxes []PodSandbox, containers []Container,
	err error) {
	ctx, done := c.link.alone(ctx, c.timeouts.list)
	defer done()
	ready := &runtimev1.PodSandboxFilter{
		State: &runtimev1.PodSandboxStateValue{State: runtimev1.PodSandboxState_SANDBOX_READY},
	}
	// a runtime may not have filtered
	sandboxes, err = c.listSandboxes(ctx, ready, func(s *PodSandbox) bool { return s.Ready })
	if err == nil {
		containers, err = c.alive(ctx)
	}
	return sandboxes, containers, err
}

// containersByState lists those of a sandbox one state after the other, for they are too large
// together. untold are the states whose are too large by themselves.
func (c *Client) containersByState(ctx context.Context, sandboxID string) (out []Container,
	untold []ContainerState, err error) {
	seen := map[string]bool{}
	for _, state := range append(slices.Clone(aliveStates), Exited) {
		within, cancel := context.WithTimeout(ctx, c.timeouts.list)
		items, err := c.listContainers(within, inState(sandboxID, state), func(one *Container) bool {
			return one.SandboxID == sandboxID && one.State == state && !seen[one.ID]
		})
		cancel()
		switch {
		case errors.Is(err, ErrTooLarge):
			untold = append(untold, state)
		case err != nil:
			return nil, nil, err
		}
		for i := range items {
			seen[items[i].ID] = true
		}
		out = append(out, items...)
	}
	return out, untold, nil
}

// NotExited lists the containers of a sandbox that have not exited, however many have: ContainersOf
// asks for all at once.
func (c *Client) NotExited(ctx context.Context, sandboxID string) (out []Container, err error) {
	items, untold, err := c.containersByState(ctx, sandboxID)
	if err == nil && slices.ContainsFunc(untold, func(s ContainerState) bool { return s != Exited }) {
		err = fmt.Errorf("list containers of sandbox %s: %w", sandboxID, ErrTooLarge)
	}
	return slices.DeleteFunc(items, func(one Container) bool { return one.State == Exited }), err
}

// listInParts lists containers where all are more than the runtime tells in one answer: those that
// may run first, for all sandboxes at once, and then those that have exited in ready sandboxes, one
// after the other. Thousands of dead ones cost no call each: a node that has them is one on which
// the agent must start. What has exited is left out where half of the time does not do for it. Only
// where those that may run are too large too, as one tenant can make them, each sandbox is asked
// for, the ready ones first; of the others those for which there is no time are Refused. So is one
// of which a part is too large.
func (c *Client) listInParts(ctx context.Context, sandboxes []PodSandbox,
	keep func(*Container) bool) (out []Container, err error) {
	out, err = c.alive(ctx)
	each := errors.Is(err, ErrTooLarge)
	if err != nil && !each {
		return nil, err
	}
	seen := make(map[string]bool, len(out))
	for i := range out {
		seen[out[i].ID] = true
	}
	leisure, cancel := halfOf(ctx)
	defer cancel()
	for _, s := range readyFirst(sandboxes) {
		if !s.Ready && !each {
			break
		}
		within := leisure
		if each && s.Ready {
			within = ctx
		}
		items, untold, err := c.partOf(within, s.ID, each)
		s.Refused = len(untold) > 0
		switch {
		case err == nil:
		case ctx.Err() == nil && leisure.Err() != nil && !each:
			return out, nil
		case ctx.Err() == nil && leisure.Err() != nil && !s.Ready:
			s.Refused = true
		default:
			return nil, err
		}
		for i := range items {
			if one := &items[i]; !seen[one.ID] && keep(one) {
				out = append(out, *one)
			}
		}
	}
	return out, nil
}

// partOf lists a sandbox's containers: all, or those that have exited.
func (c *Client) partOf(ctx context.Context, sandboxID string, all bool) (items []Container,
	untold []ContainerState, err error) {
	filter := inState(sandboxID, Exited)
	if all {
		filter.State = nil
	}
	items, err = c.listContainers(ctx, filter, func(one *Container) bool {
		return one.SandboxID == sandboxID && (all || one.State == Exited)
	})
	switch {
	case !errors.Is(err, ErrTooLarge):
		return items, nil, err
	case all:
		return c.containersByState(ctx, sandboxID)
	}
	return nil, []ContainerState{Exited}, nil
}

// readyFirst are sandboxes, the ready ones first, and then the newest.
func readyFirst(sandboxes []PodSandbox) []*PodSandbox {
	out := make([]*PodSandbox, 0, len(sandboxes))
	for i := range sandboxes {
		out = append(out, &sandboxes[i])
	}
	slices.SortStableFunc(out, func(a, b *PodSandbox) int {
		switch {
		case a.Ready != b.Ready && a.Ready:
			return -1
		case a.Ready != b.Ready:
			return 1
		case a.Ready:
			return 0 // in the runtime's order
		}
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// halfOf is a context that has half of the time that is left.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}
