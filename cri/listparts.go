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

// aliveStates are the states of containers that may run, in the order of their life cycle: a
// container that changes its state between two calls may be listed twice, but is not omitted.
var aliveStates = []ContainerState{Created, Running, Unknown}

// inState returns a filter for containers in a state; an empty ID selects all sandboxes.
func inState(sandboxID string, state ContainerState) *runtimev1.ContainerFilter {
	return &runtimev1.ContainerFilter{
		PodSandboxId: sandboxID, State: &runtimev1.ContainerStateValue{State: runtimev1.ContainerState(
			state)},
	}
}

// listAlive lists the containers that have not exited, in all sandboxes.
func (c *Client) listAlive(ctx context.Context) (out []Container, err error) {
	seen := map[string]bool{}
	for _, state := range aliveStates {
		items, err := c.listContainers(ctx, inState("", state), func(one *Container) bool {
			return one.State == state && !seen[one.ID] // the runtime may ignore the filter
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

// Alive lists the ready sandboxes, and then all containers that have not exited, in any sandbox,
// without details from a status. It makes four calls, regardless of the number of dead containers.
// It returns ErrTooLarge if a list exceeds one answer.
func (c *Client) Alive(ctx context.Context) (sandboxes []PodSandbox, containers []Container,
	err error) {
	ctx, done := c.link.exclusive(ctx, c.timeouts.list)
	defer done()
	ready := &runtimev1.PodSandboxFilter{
		State: &runtimev1.PodSandboxStateValue{State: runtimev1.PodSandboxState_SANDBOX_READY},
	}
	// the runtime may ignore the filter
	sandboxes, err = c.listSandboxes(ctx, ready, func(s *PodSandbox) bool { return s.Ready })
	if err == nil {
		containers, err = c.listAlive(ctx)
	}
	return sandboxes, containers, err
}

// containersByState lists the containers of a sandbox state by state, for a sandbox with more
// containers than fit into one answer. tooLarge lists the states with containers that still exceed
// one answer.
func (c *Client) containersByState(ctx context.Context, sandboxID string) (out []Container,
	tooLarge []ContainerState, err error) {
	seen := map[string]bool{}
	for _, state := range append(slices.Clone(aliveStates), Exited) {
		within, cancel := context.WithTimeout(ctx, c.timeouts.list)
		items, err := c.listContainers(within, inState(sandboxID, state), func(one *Container) bool {
			return one.SandboxID == sandboxID && one.State == state && !seen[one.ID]
		})
		cancel()
		switch {
		case errors.Is(err, ErrTooLarge):
			tooLarge = append(tooLarge, state)
		case err != nil:
			return nil, nil, err
		}
		for i := range items {
			seen[items[i].ID] = true
		}
		out = append(out, items...)
	}
	return out, tooLarge, nil
}

// NotExited lists the containers of a sandbox that have not exited, regardless of the number of
// exited ones. ContainersOf does the same in one call, which a large number of exited containers
// makes fail.
func (c *Client) NotExited(ctx context.Context, sandboxID string) (out []Container, err error) {
	items, tooLarge, err := c.containersByState(ctx, sandboxID)
	notExited := func(s ContainerState) bool { return s != Exited }
	if err == nil && slices.ContainsFunc(tooLarge, notExited) {
		err = fmt.Errorf("list containers of sandbox %s: %w", sandboxID, ErrTooLarge)
	}
	return slices.DeleteFunc(items, func(one Container) bool { return one.State == Exited }), err
}

// listInParts lists containers if all together exceed one answer. It first lists the containers
// that may run, of all sandboxes, with one call per state. Then it lists the exited containers of
// each ready sandbox. The number of calls does not grow with the number of dead containers, so that
// the agent can start on a node with thousands. Exited containers are omitted if half of the time
// does not suffice.
//
// If the containers that may run exceed one answer too, which one tenant can cause, it lists the
// containers of each sandbox, ready sandboxes first. A sandbox that is not ready is Refused if the
// time does not suffice. Any sandbox is Refused if a part of its list is too large.
func (c *Client) listInParts(ctx context.Context, sandboxes []PodSandbox,
	keep func(*Container) bool) (out []Container, err error) {
	out, err = c.listAlive(ctx)
	each := errors.Is(err, ErrTooLarge)
	if err != nil && !each {
		return nil, err
	}
	seen := make(map[string]bool, len(out))
	for i := range out {
		seen[out[i].ID] = true
	}
	leisure, cancel := halfOf(ctx, c.timeouts.list)
	defer cancel()
	for _, s := range readyFirst(sandboxes) {
		if !s.Ready && !each {
			break
		}
		within := leisure
		if each && s.Ready {
			within = ctx
		}
		items, tooLarge, err := c.partOf(within, s.ID, each)
		s.Refused = len(tooLarge) > 0
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

// partOf lists a sandbox's containers: all, or only the exited ones.
func (c *Client) partOf(ctx context.Context, sandboxID string, all bool) (items []Container,
	tooLarge []ContainerState, err error) {
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

// readyFirst returns the ready sandboxes in their order, then the others, newest first.
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
			return 0 // keep the runtime's order
		}
		return cmp.Or(newestFirst(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// halfOf returns a context with half of a timeout, or of the remaining time if that is less.
func halfOf(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end))
	}
	return context.WithTimeout(ctx, timeout/2)
}
