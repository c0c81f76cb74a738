package cri

import (
	"context"
	"errors"
	"fmt"
)

// Sandboxes calls each with every sandbox that it receives, without details from a status. If the
// whole list exceeds one answer, sandboxes are listed in parts (see sandboxesInParts), and left
// describes the missing ones. known holds the IDs of sandboxes listed earlier.
func (c *Client) Sandboxes(ctx context.Context, known []string,
	each func(*PodSandbox)) (left Unlisted, err error) {
	ctx, done := c.link.exclusive(ctx, c.timeouts.list)
	defer done()
	// sandboxes already passed to each, perhaps from a stream that became too large
	passed := map[string]bool{}
	pass := func(s *PodSandbox) bool {
		if !passed[s.ID] {
			passed[s.ID] = true
			each(s)
		}
		return false
	}
	if _, err = c.listSandboxes(ctx, nil, pass); !errors.Is(err, ErrTooLarge) {
		return left, err
	}
	parts, left, err := c.sandboxesInParts(ctx, known)
	for i := range parts {
		pass(&parts[i])
	}
	return left, err
}

// ContainerCallbacks holds the callbacks of AllContainers.
type ContainerCallbacks struct {
	Again     func()            // discard all containers passed so far: the listing restarts
	Container func(*Container)  // without details from a status
	Sandbox   func(*PodSandbox) // a sandbox that is not in known
	// Unlisted is called for each state in which the containers of one sandbox exceed one answer. One
	// tenant's containers must not prevent the listing of others.
	Unlisted func(sandboxID string, of ContainerState)
	Left     func(Unlisted) // a later list omitted sandboxes, so their containers were not listed
}

// listRounds limits how often sandboxes are listed again because new ones appeared.
const listRounds = 10

// AllContainers calls to.Container with each container of all sandboxes while it receives them. If the
// whole list exceeds one answer, it lists the containers of each sandbox with a separate timeout,
// and those of a large sandbox state by state. Sandboxes may appear meanwhile, so it lists the
// sandboxes again until all were visited. Ready sandboxes, in which a container may start, are
// visited last. known holds the IDs of sandboxes listed just before.
func (c *Client) AllContainers(ctx context.Context, known []string, to ContainerCallbacks) error {
	within, done := c.link.exclusive(ctx, c.timeouts.list)
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
		if left != (Unlisted{}) {
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
	return fmt.Errorf("list containers of runtime %s: new sandboxes appeared in each of %d "+
		"rounds", c.link.endpoint, listRounds)
}

// allOf calls to.Container with each container of one sandbox.
func (c *Client) allOf(ctx context.Context, sandboxID string, to ContainerCallbacks) error {
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
		to.Unlisted(sandboxID, state)
	}
	return nil
}
