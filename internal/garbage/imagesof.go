package garbage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"jettison/cri"
	"jettison/reclaim"
)

// inUse fills in the images that are in use beyond those that containers run: their image volumes, the images of sandboxes, and what
// the runtime's configuration called its sandbox image when it was last asked. Each container and sandbox is asked once in its life:
// neither changes.
//
// A container that has ended and whose status fails is left out, for nothing will run with its volumes again. One that may run and
// does not tell is an error: any image might be its volume. (The kubelet gives up on both, weakness 17.)
func (c *Collector) inUse(ctx context.Context, v *view) error {
	mounts := make(map[string][]string, len(c.mounts))
	var images []string
	for i := range v.look.Containers {
		one := &v.look.Containers[i]
		refs, asked := c.mounts[one.ID]
		if !asked {
			var err error
			switch refs, err = c.volumes(ctx, one.ID); {
			case errors.Is(err, cri.ErrNotFound):
				continue
			case err != nil && ctx.Err() != nil:
				return err
			case err != nil && one.State != reclaim.Exited:
				return fmt.Errorf("images that containers have as volumes: %w", err)
			case err != nil:
				v.doubt(err)
				continue // to be asked again
			}
		}
		mounts[one.ID] = refs
		images = append(images, refs...)
	}
	c.mounts = mounts
	pauses := make(map[string]string, len(c.pauses))
	for i := range v.look.Sandboxes {
		id := v.look.Sandboxes[i].ID
		image, asked := c.pauses[id]
		if !asked {
			var err error
			if _, image, err = c.o.Runtime.SandboxStatus(ctx, id); err != nil {
				if ctx.Err() != nil {
					return err
				}
				continue // what a runtime says of its configuration remains, and what it pins
			}
		}
		pauses[id] = image
		if image != "" && !slices.Contains(images, image) {
			images = append(images, image)
		}
	}
	c.pauses = pauses
	v.look.ImagesInUse = append(images, c.pause...)
	return nil
}

// volumes asks for the images that a container has as volumes.
func (c *Collector) volumes(ctx context.Context, id string) ([]string, error) {
	s, err := c.o.Runtime.ContainerStatus(ctx, id)
	return s.ImageVolumes, err
}
