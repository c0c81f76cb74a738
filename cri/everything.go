package cri

import (
	"context"
	"errors"
	"fmt"
)

// Sandboxes hands over all sandboxes, without what only a status tells, one after the other as they
// come: none is kept here. Where all are too large for one answer they are listed in parts (see
// sandboxesInParts), and left is what is not told. known are the IDs of those that were there
// before.
func (c *Client) Sandboxes(ctx context.Context, known []string,
	each func(*PodSandbox)) (left Untold, err error) {
	ctx, done := c.link.alone(ctx, c.timeouts.list)
	defer done()
	told := map[string]bool{} // by a stream that became too large
	hand := func(s *PodSandbox) bool {
		if !told[s.ID] {
			told[s.ID] = true
			each(s)
		}
		return false
	}
	if _, err = c.listSandboxes(ctx, nil, hand); !errors.Is(err, ErrTooLarge) {
		return left, err
	}
	parts, left, err := c.sandboxesInParts(ctx, known)
	for i := range parts {
		hand(&parts[i])
	}
	return left, err
}

// Told is who is told by AllContainers.
type Told struct {
	Again     func()            // what was told is void, and comes anew
	Container func(*Container)  // without what only a status tells
	Sandbox   func(*PodSandbox) // one that is not known
	// Untold gets the states whose containers in a sandbox are more than an answer takes even alone:
	// one tenant's keep nobody else's from being told.
	Untold func(sandboxID string, of ContainerState)
	Left   func(Untold) // sandboxes that are not told when they are listed again, and so are not asked
}

// listRounds bounds how often sandboxes are listed again that came while others were asked.
const listRounds = 10

// AllContainers hands over the containers of all sandboxes, as they come. Where all are more than
// the runtime tells in one answer, it asks for those of one sandbox after the other, each with a
// deadline of its own, and of one that has too many for one state after the other. That takes long,
// and a sandbox may come meanwhile: they are listed again until there is none that was not asked.
// Those that are ready, in which something may start, are asked last. known are the IDs of
// sandboxes that were listed just before.
func (c *Client) AllContainers(ctx context.Context, known []string, to Told) error {
	within, done := c.link.alone(ctx, c.timeouts.list)
	_, err := c.listContainers(within, nil,
		func(one *Container) bool { to.Container(one); return false })
	done()
	if !errors.Is(err, ErrTooLarge) {
		return err
	}
	to.Again()
	isKnown, asked := make(map[string]bool, len(known)), map[string]bool{}
	for _, id := range known {
		isKnown[id] = true
	}
	for range listRounds {
		var over, ready []string
		left, err := c.Sandboxes(ctx, known, func(s *PodSandbox) {
			switch {
			case asked[s.ID]:
				return
			case s.Ready:
				ready = append(ready, s.ID)
			default:
				over = append(over, s.ID)
			}
			if asked[s.ID] = true; !isKnown[s.ID] {
				to.Sandbox(s)
			}
		})
		if err != nil {
			return err
		}
		if left != (Untold{}) {
			to.Left(left)
		}
		if len(over)+len(ready) == 0 {
			return nil
		}
		for _, id := range append(over, ready...) {
			if err := c.allOf(ctx, id, to); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("list containers of runtime %s: new sandboxes came %d times while others were "+
		"asked", c.link.endpoint, listRounds)
}

// allOf hands over those of one sandbox.
func (c *Client) allOf(ctx context.Context, sandboxID string, to Told) error {
	own, err := c.Containers(ctx, sandboxID)
	var large []ContainerState
	if errors.Is(err, ErrTooLarge) {
		own, large, err = c.containersByState(ctx, sandboxID)
	}
	if err != nil {
		return err
	}
	for i := range own {
		to.Container(&own[i])
	}
	for _, state := range large {
		to.Untold(sandboxID, state)
	}
	return nil
}
