package garbage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"jettison/cri"
	"jettison/reclaim"
)

// silentMost is for how long a container that may run and does not tell its volumes keeps all
// images. From then on images go as without it, as they do for young sandboxes
// (reclaim.PullingMost): a tenant can make one that never tells, and a disk that is full stops the
// node.
const silentMost = reclaim.PullingMost

// silent is a container that may run and did not tell its volumes, or a sandbox that did not tell
// its containers.
type silent struct {
	since time.Duration // uptime
	// uptime when the answer last did not come in time, which costs a whole deadline; 0: it did
	late time.Duration
	err  error
}

// asking is a round of questions for volumes.
type asking struct {
	*Collector
	v       *view
	silent  map[string]silent // in this round
	late    int               // answers that did not come in time
	unasked int               // for that
	keeps   error             // why no image goes: the first reason; nil: they may
}

// inUse fills in the images that are in use beyond those that containers run: their image volumes,
// the images of sandboxes, and what the runtime's configuration called its sandbox image when it
// was last asked. Each container and sandbox is asked once in its life: neither changes.
//
// A container that has ended and whose status fails is left out, for nothing will run with its
// volumes again. One that may run and does not tell is an error for silentMost: any image might be
// its volume. (The kubelet gives up on both, weakness 17.)
func (c *Collector) inUse(ctx context.Context, v *view) error {
	volumes, err := c.volumesOf(ctx, v)
	if err != nil {
		return fmt.Errorf("images that containers have as volumes: %w", err)
	}
	pauses, err := c.pausesOf(ctx, v)
	if err != nil {
		return err
	}
	v.look.ImagesInUse = slices.Concat(volumes, pauses, c.pause)
	return nil
}

// volumesOf are the images that containers have as volumes. What is told is kept, whatever others
// do not tell.
func (c *Collector) volumesOf(ctx context.Context, v *view) (images []string, err error) {
	mounts, a := make(map[string][]string, len(c.mounts)),
		asking{Collector: c, v: v, silent: map[string]silent{}}
	for _, id := range v.untold {
		a.failed(&reclaim.Container{ID: id, State: reclaim.StateAbsent}, errUntold, 0)
	}
	all := v.look.Containers
	for _, i := range turns(len(all), func(i int) bool { return c.silent[all[i].ID].late > 0 }) {
		one := &all[i]
		if one.State == reclaim.StateAbsent {
			continue
		}
		refs, told := c.mounts[one.ID]
		if !told {
			if refs, told = a.volumes(ctx, one); ctx.Err() != nil {
				maps.Copy(c.mounts, mounts)
				maps.Copy(c.silent, a.silent)
				return nil, ctx.Err()
			}
		}
		if told {
			mounts[one.ID] = refs
			images = append(images, refs...)
		}
	}
	if c.mounts, c.silent = mounts, a.silent; a.unasked > 0 {
		v.doubt(fmt.Errorf("%d containers were not asked for their volumes, for %d others did not "+
			"answer in time", a.unasked, a.late))
	}
	return images, a.keeps
}

// pausesOf are the images of sandboxes. Of one that does not tell remains what the runtime says of
// its configuration, and what it pins.
func (c *Collector) pausesOf(ctx context.Context, v *view) (images []string, err error) {
	pauses, hung, now := make(map[string]string, len(c.pauses)), map[string]time.Duration{}, c.uptime()
	all, late := v.look.Sandboxes, 0
	for _, i := range turns(len(all), func(i int) bool { return c.hung[all[i].ID] > 0 }) {
		id := all[i].ID
		image, told := c.pauses[id]
		if at := c.hung[id]; !told && (late >= lateMost || at > 0 && now-at < silentMost) {
			if at > 0 {
				hung[id] = at
			}
			continue
		}
		if !told {
			if _, image, err = c.o.Runtime.SandboxStatus(ctx, id); ctx.Err() != nil {
				maps.Copy(c.pauses, pauses)
				return nil, ctx.Err()
			}
			if errors.Is(err, context.DeadlineExceeded) { // each costs its whole deadline, at each look
				late++
				hung[id] = max(now, 1)
			}
			if err != nil {
				continue
			}
		}
		pauses[id] = image
		if image != "" && !slices.Contains(images, image) {
			images = append(images, image)
		}
	}
	c.pauses, c.hung = pauses, hung
	return images, nil
}

// turns are the numbers up to n in the order in which they are asked, those last that hung before:
// they would be asked again and again, and others never.
func turns(n int, hung func(i int) bool) []int {
	out := make([]int, 0, n)
	for _, which := range []bool{false, true} {
		for i := range n {
			if hung(i) == which {
				out = append(out, i)
			}
		}
	}
	return out
}

var (
	errUntold  = errors.New("its containers are more than the runtime tells in one answer")
	errUnasked = errors.New("it was not asked, for others did not answer in time")
)

// volumes asks for the images that a container has as volumes; false: it does not tell them, or is
// gone.
func (a *asking) volumes(ctx context.Context, one *reclaim.Container) ([]string, bool) {
	is, silent := a.Collector.silent[one.ID]
	switch now := a.uptime(); {
	case silent && is.late > 0 && now-is.late < silentMost:
		a.failed(one, is.err, is.late)
		return nil, false
	case a.late >= lateMost: // each costs its whole deadline: the others are asked in the next round
		if a.unasked++; one.State != reclaim.Exited {
			a.failed(one, cmp.Or(is.err, errUnasked), is.late)
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

// failed notes one that did not tell. One that may run keeps all images until it has not for
// silentMost.
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
		a.v.doubt(fmt.Errorf("images go as if %.64q had none as volumes, which it has not told for %v: "+
			"%w", one.ID, silentMost, err))
	}
}

func (a *asking) keep(why error) {
	if a.keeps == nil {
		a.keeps = why
	}
}
