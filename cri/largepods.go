package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Untold is what a list of sandboxes leaves out, for it is more than the runtime tells: never one
// in which a container may run.
type Untold struct {
	Ready bool // there may be more that are ready
	Over  bool // there may be more that are not
	// Dead: those may have containers, which have exited. Else they have none.
	Dead bool
}

// anySandboxes lists all sandboxes. A pod may have 256 KiB of annotations, which each of its
// sandboxes repeats, those of finished pods too: 65 of them are more than maxMessage. What is too
// large for one answer is listed in parts.
func (c *Client) anySandboxes(ctx context.Context, known []string) ([]PodSandbox, Untold, error) {
	out, err := c.listSandboxes(ctx, nil, nil)
	if !errors.Is(err, ErrTooLarge) {
		return out, Untold{}, err
	}
	return c.sandboxesInParts(ctx, known)
}

// sandboxesInParts lists those that are ready and those that are not, and of a part that is still
// too large those that containers name and those that are known from before, one by one. Where one
// in which something runs may not be among them it is ErrTooLarge. What has ended and for which
// there is no time is left out.
func (c *Client) sandboxesInParts(ctx context.Context, known []string) (_ []PodSandbox, left Untold,
	err error) {
	p := largePods{c: c, seen: map[string]bool{}}
	ready, err := p.state(ctx, runtimev1.PodSandboxState_SANDBOX_READY)
	if err != nil {
		return nil, left, err
	}
	alive := p.named(ctx, aliveStates...) // some of one that is not ready may run
	if alive != nil && (!ready || !errors.Is(alive, ErrTooLarge)) {
		return nil, left, alive
	}
	// What has ended may be tens of thousands, and must not take the time of the rest.
	within, cancel := halfOf(ctx)
	defer cancel()
	over, err := p.state(within, runtimev1.PodSandboxState_SANDBOX_NOTREADY)
	left = Untold{Ready: !ready, Over: !over}
	if err == nil && left != (Untold{}) {
		if err = p.each(within, known); err == nil || errors.Is(err, ErrTooLarge) {
			err = p.named(within, Exited)
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

// largePods are sandboxes that are listed in parts.
type largePods struct {
	c    *Client
	out  []PodSandbox
	seen map[string]bool // ids in out, and those asked for
}

// state lists those of one state. false: they are too large for one answer, too.
func (p *largePods) state(ctx context.Context, state runtimev1.PodSandboxState) (whole bool,
	err error) {
	items, err := p.c.listSandboxes(ctx,
		&runtimev1.PodSandboxFilter{State: &runtimev1.PodSandboxStateValue{State: state}},
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

// named lists those that containers of some states name, all of them or it is an error.
func (p *largePods) named(ctx context.Context, states ...ContainerState) error {
	ids := map[string]bool{}
	for _, state := range states {
		_, err := p.c.listContainers(ctx, inState("", state), func(one *Container) bool {
			if one.SandboxID != "" && one.State == state { // a runtime may not have filtered
				ids[one.SandboxID] = true
			}
			return false
		})
		if err != nil {
			return fmt.Errorf("sandboxes are too large for one answer (look for pods with large annotations), "+
				"and containers that would name them cannot be listed: %w", err)
		}
	}
	return p.each(ctx, slices.Sorted(maps.Keys(ids)))
}

// each lists some by their ids, one by one, of those that were not listed before. One that is gone
// is no error.
func (p *largePods) each(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if p.seen[id] {
			continue
		}
		it := func(s *PodSandbox) bool { return s.ID == id } // a runtime may not have filtered
		items, err := p.c.listSandboxes(ctx, &runtimev1.PodSandboxFilter{Id: id}, it)
		if err != nil {
			return fmt.Errorf("of sandbox %s alone: %w", id, err)
		}
		p.seen[id] = true
		p.out = append(p.out, items...)
	}
	return nil
}

// SandboxesOf lists a pod's sandboxes, in any state. It is ErrTooLarge where some may be left out.
// Where all sandboxes are more than the runtime tells, those are asked for that have the kubelet's
// label: who labels one of a pod's labels all. Not everybody does it who has a runtime make pods.
// It goes with an eviction, whose pod has its grace period only: it waits for lists of everything
// no longer than patienceForList.
func (c *Client) SandboxesOf(ctx context.Context, uid string) (of []PodSandbox, err error) {
	ctx, done := c.link.soonAlone(ctx, c.timeouts.list)
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
	if err == nil && left != (Untold{}) {
		err = fmt.Errorf("list pod sandboxes of pod %s of runtime %s: %w: some may not be told (look "+
			"for pods with large annotations)",
			uid, c.link.endpoint, ErrTooLarge)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(s PodSandbox) bool { return s.UID != uid }), nil
}
