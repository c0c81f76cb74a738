package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Unlisted describes the sandboxes that a list omits because they exceed the answers of the runtime.
// A sandbox in which a container may run is never omitted.
type Unlisted struct {
	Ready bool // more ready sandboxes may exist
	Over  bool // more sandboxes that are not ready may exist
	// Dead: the omitted sandboxes may have containers, which have exited. Otherwise they have no
	// containers.
	Dead bool
}

// anySandboxes lists all sandboxes, in parts if they exceed one answer. A pod may have 256 KiB of
// annotations, and each of its sandboxes repeats them, even after the pod has finished: 65 such
// sandboxes exceed maxMessage.
func (c *Client) anySandboxes(ctx context.Context, known []string) ([]PodSandbox, Unlisted, error) {
	out, err := c.listSandboxes(ctx, nil, nil)
	if !errors.Is(err, ErrTooLarge) {
		return out, Unlisted{}, err
	}
	return c.sandboxesInParts(ctx, known)
}

// sandboxesInParts lists the ready sandboxes, and then the others. If one part still exceeds one
// answer, it lists the sandboxes that containers name, and the sandboxes in known, one by one. It
// returns ErrTooLarge if a sandbox with a running container may be missing. It omits ended
// sandboxes if the time does not suffice.
func (c *Client) sandboxesInParts(ctx context.Context, known []string) (_ []PodSandbox, left Unlisted,
	err error) {
	p := largePods{c: c, seen: map[string]bool{}}
	ready, err := p.state(ctx, runtimev1.PodSandboxState_SANDBOX_READY)
	if err != nil {
		return nil, left, err
	}
	alive := p.namedBy(ctx, aliveStates...) // containers may run in a sandbox that is not ready
	if alive != nil && (!ready || !errors.Is(alive, ErrTooLarge)) {
		return nil, left, alive
	}
	// A node may have tens of thousands of ended sandboxes. They must not use up the time for the
	// others.
	within, cancel := halfOf(ctx, c.timeouts.list)
	defer cancel()
	over, err := p.state(within, runtimev1.PodSandboxState_SANDBOX_NOTREADY)
	left = Unlisted{Ready: !ready, Over: !over}
	if err == nil && left != (Unlisted{}) {
		if err = p.each(within, known); err == nil || errors.Is(err, ErrTooLarge) {
			err = p.namedBy(within, Exited)
		}
	}
	switch {
	case alive != nil && !over:
		return nil, left, alive
	case errors.Is(err, ErrTooLarge), errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		left.Dead = true
	case err != nil:
		return nil, left, err
	}
	return p.out, left, nil
}

// largePods collects sandboxes that are listed in parts.
type largePods struct {
	c    *Client
	out  []PodSandbox
	seen map[string]bool // IDs in out, and other requested IDs
}

// state lists the sandboxes of one state. It returns false if the sandboxes of that state exceed
// one answer too.
func (p *largePods) state(ctx context.Context, state runtimev1.PodSandboxState) (whole bool,
	err error) {
	items, err := p.c.listSandboxes(ctx,
		&runtimev1.PodSandboxFilter{State: &runtimev1.PodSandboxStateValue{State: state}},
		func(s *PodSandbox) bool { // the runtime may ignore the filter
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

// namedBy lists the sandboxes that containers in the given states name. It fails unless it can list
// all of these sandboxes.
func (p *largePods) namedBy(ctx context.Context, states ...ContainerState) error {
	ids := map[string]bool{}
	for _, state := range states {
		_, err := p.c.listContainers(ctx, inState("", state), func(one *Container) bool {
			if one.SandboxID != "" && one.State == state { // the runtime may ignore the filter
				ids[one.SandboxID] = true
			}
			return false
		})
		if err != nil {
			return fmt.Errorf("sandboxes exceed one answer (check for pods with large annotations), "+
				"and the containers that name them cannot be listed: %w", err)
		}
	}
	return p.each(ctx, slices.Sorted(maps.Keys(ids)))
}

// each lists sandboxes by their IDs, one by one, except sandboxes already listed. A missing sandbox
// is no error.
func (p *largePods) each(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if p.seen[id] {
			continue
		}
		match := func(s *PodSandbox) bool { return s.ID == id } // the runtime may ignore the filter
		items, err := p.c.listSandboxes(ctx, &runtimev1.PodSandboxFilter{Id: id}, match)
		if err != nil {
			return fmt.Errorf("list sandbox %s alone: %w", id, err)
		}
		p.seen[id] = true
		p.out = append(p.out, items...)
	}
	return nil
}

// SandboxesOf lists a pod's sandboxes, in any state. It returns ErrTooLarge if some may be missing.
// If all sandboxes exceed one answer, it lists the sandboxes with the kubelet's label: a CRI client
// that labels one sandbox of a pod labels all. CRI clients other than a kubelet may not set the
// label; then it lists all sandboxes in parts. The call is part of an eviction, which has only the
// pod's grace period. It therefore waits for other complete lists no longer than patienceForList.
func (c *Client) SandboxesOf(ctx context.Context, uid string) (of []PodSandbox, err error) {
	ctx, done := c.link.exclusiveSoon(ctx, c.timeouts.list)
	defer done()
	own := func(s *PodSandbox) bool { return s.UID == uid }
	if of, err = c.listSandboxes(ctx, nil, own); !errors.Is(err, ErrTooLarge) {
		return of, err
	}
	of, err = c.listSandboxes(ctx,
		&runtimev1.PodSandboxFilter{LabelSelector: map[string]string{uidLabel: uid}}, own)
	if len(of) > 0 || err != nil && !errors.Is(err, ErrTooLarge) {
		return of, err
	}
	all, left, err := c.sandboxesInParts(ctx, nil)
	if err == nil && left != (Unlisted{}) {
		err = fmt.Errorf("list pod sandboxes of pod %s of runtime %s: %w: some may be missing (check "+
			"for pods with large annotations)",
			uid, c.link.endpoint, ErrTooLarge)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(s PodSandbox) bool { return s.UID != uid }), nil
}
