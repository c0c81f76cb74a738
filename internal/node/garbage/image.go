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

// pullPoll is the interval between two lists while a young sandbox may still get its container.
const pullPoll = 250 * time.Millisecond

// removeImage removes an image that the runtime reports as neither pinned nor in use, while no
// sandbox is about to get its container. A container may still start to use the image before the
// removal: the CRI cannot prevent that.
func (x *run) removeImage(s *reclaim.Step) (Outcome, string, error) {
	c := x.c
	v, why, err := x.settledLists()
	if err != nil {
		return Failed, "", err
	}
	if why != "" {
		x.imagesBlocked = why
		return skip("%s", why)
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
		return Failed, "", fmt.Errorf("status of image %.80q: the runtime returned image %.80q", s.ID,
			now.ID)
	case now.Pinned:
		return skip("image is pinned")
	}
	image := imageOf(&now)
	if reclaim.UsedIn(v.look).Image(&image) {
		return skip("image is in use by a container")
	}
	if err := x.call(func(ctx context.Context) error {
		return c.o.Runtime.RemoveImage(ctx, s.ID, s.RuntimeHandler)
	}); err != nil {
		return Failed, "", err
	}
	return Removed, "", nil
}

// settledLists returns the runtime's lists (see usedNow) once every young sandbox has a container,
// or the reason why image removals are postponed. Under disk pressure it waits, for a limited total
// time per pass, and then continues anyway.
func (x *run) settledLists() (v *view, why string, err error) {
	for {
		if v, err = x.usedNow(); err != nil {
			return nil, "", err
		}
		young := v.pulling()
		switch {
		case young == "" || x.waited >= x.c.wait:
			return v, "", nil
		case x.q.trigger != reclaim.DiskPressure && x.v.look.Postponed < reclaim.MaxPostponed:
			x.pulling = true
			return nil, young + " and may be about to use the image", nil
		}
		began := x.c.now()
		pause := min(pullPoll, x.c.wait-x.waited)
		if !retry.Sleep(x.ctx, pause) {
			return nil, "", x.ctx.Err()
		}
		x.waited += max(x.c.now().Sub(began), pause) // the clock may be set back
	}
}

// pulling describes a sandbox for which an image may just have been pulled; empty: no such sandbox.
func (v *view) pulling() string {
	if id := v.look.Pulling(v.time); id != "" {
		return fmt.Sprintf("sandbox %.64q is young, has no container yet", id)
	}
	if v.partial {
		return "a sandbox that the runtime cannot list may be young"
	}
	return ""
}

// usedNow returns lists of everything that may use an image now. If the runtime lists its
// containers quickly, all are listed again. With thousands of dead containers that would take too
// long for each image. Then usedNow lists again only ready sandboxes and containers that may run,
// and exited containers in new sandboxes, because a pod between two starts needs its image. If the
// last full list is not recent, it lists exited containers in all ready sandboxes. It misses a
// container that started and ended in between in a sandbox that is no longer ready.
func (x *run) usedNow() (*view, error) {
	before := x.listed
	all, err := x.fresh(x.listsFor > freshMin)
	if err != nil || x.listed != before {
		return all, err
	}
	v := &view{look: &reclaim.Look{}, unlisted: slices.Clone(all.unlisted)}
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
	recent := x.c.now().Sub(all.time).Abs() <= freshMax
	for i := range sandboxes {
		if known := had[sandboxes[i].ID]; known && recent {
			continue
		} else if err := x.addExited(v, texts, sandboxes[i].ID, known, alive); err != nil {
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

// addExited adds the exited containers of a ready sandbox to a view. seen contains the IDs that
// were added. known means that the sandbox is not new, so its earlier containers are in the view
// anyway.
func (x *run) addExited(v *view, texts *texts, id string, known bool, seen map[string]bool) error {
	own, err := x.c.o.Runtime.Containers(x.ctx, id)
	switch {
	case errors.Is(err, cri.ErrTooLarge) && known:
		return nil
	case errors.Is(err, cri.ErrTooLarge):
		v.addUnlisted(texts.sandboxes[id], id, cri.Unknown)
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
