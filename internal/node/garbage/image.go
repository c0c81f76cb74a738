package garbage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"jettison/cri"
	"jettison/internal/base/retry"
	"jettison/reclaim"
)

// pullPoll is how often sandboxes are looked at again for which an image may just have been pulled.
const pullPoll = 250 * time.Millisecond

// removeImage removes an image that by what the runtime says at this moment is neither pinned nor
// in use, and while no sandbox is about to get its container. Between that and the removal
// something may still begin to use it: the CRI has no way to prevent that.
func (x *run) removeImage(s *reclaim.Step) (Outcome, string, error) {
	c := x.c
	v, why, err := x.settled()
	if err != nil {
		return Failed, "", err
	}
	if why != "" {
		x.images = why
		return changed("%s", why)
	}
	if err := c.inUse(x.ctx, v); err != nil {
		return Failed, "", err
	}
	now, err := c.o.Runtime.ImageStatus(x.ctx, s.ID)
	switch {
	case errors.Is(err, cri.ErrNotFound):
		return WasGone, "", nil
	case err != nil:
		return Failed, "", err
	case now.ID != s.ID:
		return Failed, "", fmt.Errorf("asked for image %.80q, the runtime answers with %.80q", s.ID,
			now.ID)
	case now.Pinned:
		return changed("it is pinned")
	}
	image := imageOf(&now)
	if reclaim.UsedIn(v.look).Image(&image) {
		return changed("a container uses it")
	}
	if err := x.call(func(ctx context.Context) error {
		return c.o.Runtime.RemoveImage(ctx, s.ID, s.RuntimeHandler)
	}); err != nil {
		return Failed, "", err
	}
	return Removed, "", nil
}

// settled are the runtime's lists (see usedNow) once no young sandbox lacks its container, or why
// images have to wait for that. Disk pressure waits for a while, in all of a pass and whichever
// sandboxes come and go meanwhile, and then goes on without.
func (x *run) settled() (v *view, why string, err error) {
	for {
		if v, err = x.usedNow(); err != nil {
			return nil, "", err
		}
		young := v.pulling()
		switch {
		case young == "" || x.waited >= x.c.wait:
			return v, "", nil
		case x.q.trigger != reclaim.DiskPressure && x.v.look.PutOff < reclaim.PullingMost:
			x.pulling = true
			return nil, young + ": the image may be its", nil
		}
		began := x.c.now()
		pause := min(pullPoll, x.c.wait-x.waited)
		if !retry.Sleep(x.ctx, pause) {
			return nil, "", x.ctx.Err()
		}
		x.waited += max(x.c.now().Sub(began), pause) // a clock may be set back
	}
}

// pulling is the sandbox for which an image may just have been pulled; empty: there is none.
func (v *view) pulling() string {
	if id := v.look.Pulling(v.time); id != "" {
		return fmt.Sprintf("sandbox %.64q is young and has no container yet", id)
	}
	if v.partly {
		return "a sandbox that the runtime does not tell may be young"
	}
	return ""
}

// usedNow are lists from which all is seen that may use an image at this moment. Where the runtime
// tells its containers in next to no time they are all listed anew. On a node with thousands of
// dead ones that would take as long for each image as all of them may have: there what is ready or
// may run is listed anew, and what has exited in sandboxes that came since, for a pod between two
// starts needs its image; where the rest is not of a moment ago, in all that are ready. A container
// that was made and has ended in between in one that is not ready any more is not seen then.
func (x *run) usedNow() (*view, error) {
	before := x.listed
	all, err := x.fresh(x.listsFor > freshLeast)
	if err != nil || x.listed != before {
		return all, err
	}
	v := &view{look: &reclaim.Look{}, untold: slices.Clone(all.untold)}
	sandboxes, containers, err := x.c.o.Runtime.Alive(x.ctx)
	switch {
	case errors.Is(err, cri.ErrTooLarge):
		return x.fresh(false)
	case err != nil:
		return nil, err
	}
	alive := make(map[string]bool, len(sandboxes)+len(containers))
	for i := range sandboxes {
		alive[sandboxes[i].ID] = true
		s := sandboxOf(&sandboxes[i])
		x.c.dateReady(&s)
		v.look.Sandboxes = append(v.look.Sandboxes, s)
	}
	had := make(map[string]bool, len(all.look.Sandboxes))
	for i := range all.look.Sandboxes {
		s := all.look.Sandboxes[i]
		if had[s.ID] = true; !alive[s.ID] {
			s.NotReady = true
			v.look.Sandboxes = append(v.look.Sandboxes, s)
		}
	}
	texts := newTexts(v.look.Sandboxes)
	for i := range containers {
		alive[containers[i].ID] = true
		v.look.Containers = append(v.look.Containers, texts.container(&containers[i]))
	}
	recent := x.c.now().Sub(all.time).Abs() <= freshMost
	for i := range sandboxes {
		if known := had[sandboxes[i].ID]; known && recent {
			continue
		} else if err := x.exited(v, texts, sandboxes[i].ID, known, alive); err != nil {
			return nil, err
		}
	}
	for i := range all.look.Containers {
		if c := &all.look.Containers[i]; !alive[c.ID] {
			v.look.Containers = append(v.look.Containers, *c)
		}
	}
	v.time = x.c.now()
	return v, nil
}

// exited adds to a view what has exited in a ready sandbox. seen are the IDs of what was added.
// known: the sandbox is not new, and what it had before is seen anyway.
func (x *run) exited(v *view, texts *texts, id string, known bool, seen map[string]bool) error {
	own, err := x.c.o.Runtime.Containers(x.ctx, id)
	switch {
	case errors.Is(err, cri.ErrTooLarge) && known:
		return nil
	case errors.Is(err, cri.ErrTooLarge):
		v.miss(texts.sandboxes[id], id, cri.Unknown)
		return nil
	case err != nil:
		return err
	}
	for i := range own {
		if !seen[own[i].ID] {
			seen[own[i].ID] = true
			v.look.Containers = append(v.look.Containers, texts.container(&own[i]))
		}
	}
	return nil
}
