package garbage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"jettison/cri"
	"jettison/reclaim"
)

// silentMost is for how long a container that may run and does not tell its volumes keeps all images. From then on images go as without
// it, as they do for young sandboxes (reclaim.PullingMost): a tenant can make one that never tells, and a disk that is full stops the
// node.
const silentMost = reclaim.PullingMost

// silent is a container that may run and did not tell its volumes, or a sandbox that did not tell its containers.
type silent struct {
	since time.Duration // uptime
	late  time.Duration // uptime when the answer last did not come in time, which costs a whole deadline; 0: it did
	err   error
}

// asking is a round of questions for volumes.
type asking struct {
	*Collector
	v      *view
	silent map[string]silent // in this round
	late   int               // answers that did not come in time
	keeps  error             // why no image goes: the first reason; nil: they may
}

// inUse fills in the images that are in use beyond those that containers run: their image volumes, the images of sandboxes, and what
// the runtime's configuration called its sandbox image when it was last asked. Each container and sandbox is asked once in its life:
// neither changes.
//
// A container that has ended and whose status fails is left out, for nothing will run with its volumes again. One that may run and
// does not tell is an error for silentMost: any image might be its volume. (The kubelet gives up on both, weakness 17.)
func (c *Collector) inUse(ctx context.Context, v *view) error {
	mounts, a := make(map[string][]string, len(c.mounts)), asking{Collector: c, v: v, silent: map[string]silent{}}
	var images []string
	for _, id := range v.untold {
		a.failed(&reclaim.Container{ID: id, State: reclaim.StateAbsent}, errUntold, 0)
	}
	for i := range v.look.Containers {
		one := &v.look.Containers[i]
		if one.State == reclaim.StateAbsent {
			continue
		}
		refs, asked := c.mounts[one.ID]
		if !asked {
			if refs, asked = a.volumes(ctx, one); ctx.Err() != nil {
				return fmt.Errorf("images that containers have as volumes: %w", ctx.Err())
			}
		}
		if asked {
			mounts[one.ID] = refs
			images = append(images, refs...)
		}
	}
	if c.silent = a.silent; a.keeps != nil {
		return fmt.Errorf("images that containers have as volumes: %w", a.keeps)
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

var errUntold = errors.New("its containers are more than the runtime tells in one answer")

// volumes asks for the images that a container has as volumes; false: it does not tell them, or is gone.
func (a *asking) volumes(ctx context.Context, one *reclaim.Container) ([]string, bool) {
	is, silent := a.Collector.silent[one.ID]
	switch now := a.uptime(); {
	case silent && is.late > 0 && now-is.late < silentMost:
		a.failed(one, is.err, is.late)
		return nil, false
	case a.late >= lateMost: // each costs its whole deadline: the others are asked in the next round
		if silent {
			a.silent[one.ID] = is
		}
		err := fmt.Errorf("%.64q was not asked, for %d others did not answer in time", one.ID, a.late)
		if a.v.doubt(err); one.State != reclaim.Exited {
			a.keep(err)
		}
		return nil, false
	}
	s, err := a.o.Runtime.ContainerStatus(ctx, one.ID)
	switch {
	case err == nil:
		return s.ImageVolumes, true
	case errors.Is(err, cri.ErrNotFound), ctx.Err() != nil:
		return nil, false
	}
	late := time.Duration(0)
	if errors.Is(err, context.DeadlineExceeded) {
		a.late++
		late = a.uptime()
	}
	a.failed(one, err, late)
	return nil, false
}

// failed notes one that did not tell. One that may run keeps all images until it has not for silentMost.
func (a *asking) failed(one *reclaim.Container, err error, late time.Duration) {
	is, known := a.Collector.silent[one.ID]
	if !known {
		is.since = a.uptime()
	}
	is.err, is.late = err, late
	a.silent[one.ID] = is
	switch {
	case one.State == reclaim.Exited:
		a.v.doubt(err) // to be asked again
	case a.uptime()-is.since < silentMost:
		a.keep(fmt.Errorf("%.64q: %w", one.ID, err))
	default:
		a.v.doubt(fmt.Errorf("images go as if %.64q had none as volumes, which it has not told for %v: %w", one.ID, silentMost, err))
	}
}

func (a *asking) keep(why error) {
	if a.keeps == nil {
		a.keeps = why
	}
}
