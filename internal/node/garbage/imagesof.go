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

// maxUnanswered bounds how long a container that may run and whose volumes are unknown blocks the
// removal of images, as reclaim.MaxPostponed does for young sandboxes. A tenant can create a
// container that never answers, and a full disk stops the node.
const maxUnanswered = reclaim.MaxPostponed

// unanswered is a container that may run and whose volumes are unknown, or a sandbox with unlisted
// containers.
type unanswered struct {
	since time.Duration // uptime
	// uptime of the last timeout, which costs a whole deadline; 0: the last call did not time out
	timedOutAt time.Duration
	err        error
}

// volumeQuery is one round of status calls for the volumes of containers.
type volumeQuery struct {
	*Collector
	v          *view
	unanswered map[string]unanswered // found in this round
	timeouts   int                   // calls that timed out
	skipped    int                   // containers not queried because of the timeouts
	blocked    error                 // first reason to remove no image; nil: images may be removed
}

// inUse sets ImagesInUse: images in use in addition to those that containers name. These are image
// volumes, images that containers run and the list no longer names so, images of sandboxes, and the
// sandbox images of the runtime's configuration. Each container and sandbox is queried once in its
// life, because the answer does not change.
//
// An exited container with a failing status is left out, because its volumes will not be used
// again. A container that may run and does not answer is an error for maxUnanswered: any image
// might be its volume. (The kubelet gives up on both, weakness 17.)
func (c *Collector) inUse(ctx context.Context, v *view) error {
	volumes, err := c.volumesOf(ctx, v)
	if err != nil {
		return fmt.Errorf("find images used as volumes: %w", err)
	}
	own, err := c.ownImagesOf(ctx, v)
	if err != nil {
		return fmt.Errorf("find images of containers: %w", err)
	}
	pauses, err := c.sandboxImagesOf(ctx, v)
	if err != nil {
		return err
	}
	v.look.ImagesInUse = slices.Concat(volumes, own, pauses, c.configImages)
	return nil
}

// volumesOf returns the images that containers use as volumes. It keeps every answer, even if other
// containers do not answer.
func (c *Collector) volumesOf(ctx context.Context, v *view) (images []string, err error) {
	mounts, a := make(map[string][]string, len(c.mounts)),
		volumeQuery{Collector: c, v: v, unanswered: map[string]unanswered{}}
	for _, id := range v.unlisted {
		a.recordFailure(&reclaim.Container{ID: id, State: reclaim.StateAbsent}, errUnlisted, 0)
	}
	all := v.look.Containers
	hung := func(i int) bool { return c.unanswered[all[i].ID].timedOutAt > 0 }
	for _, i := range queryOrder(len(all), hung) {
		one := &all[i]
		if one.State == reclaim.StateAbsent {
			continue
		}
		refs, known := c.mounts[one.ID]
		if !known {
			if refs, known = a.volumes(ctx, one); ctx.Err() != nil {
				maps.Copy(c.mounts, mounts)
				maps.Copy(c.unanswered, a.unanswered)
				return nil, ctx.Err()
			}
		}
		if known {
			mounts[one.ID] = refs
			images = append(images, refs...)
		}
	}
	if c.mounts, c.unanswered = mounts, a.unanswered; a.skipped > 0 {
		v.addProblem(fmt.Errorf("volumes of %d containers not queried, because %d status calls timed out",
			a.skipped, a.timeouts))
	}
	return images, a.blocked
}

// sandboxImagesOf returns the images of sandboxes. For a sandbox that does not answer, the images
// of the runtime's configuration and the pinned images still protect its image.
func (c *Collector) sandboxImagesOf(ctx context.Context, v *view) (images []string, err error) {
	found, hung := make(map[string]string, len(c.sandboxImage)), map[string]time.Duration{}
	now := c.uptime()
	all, late := v.look.Sandboxes, 0
	for _, i := range queryOrder(len(all), func(i int) bool { return c.hung[all[i].ID] > 0 }) {
		id := all[i].ID
		image, known := c.sandboxImage[id]
		if at := c.hung[id]; !known && (late >= maxTimeouts || at > 0 && now-at < maxUnanswered) {
			if at > 0 {
				hung[id] = at
			}
			continue
		}
		if !known {
			if _, image, err = c.o.Runtime.SandboxStatus(ctx, id); ctx.Err() != nil {
				maps.Copy(c.sandboxImage, found)
				return nil, ctx.Err()
			}
			// each timeout costs a whole deadline, in each look
			if errors.Is(err, context.DeadlineExceeded) {
				late++
				hung[id] = max(now, 1)
			}
			if err != nil {
				continue
			}
		}
		found[id] = image
		if image != "" && !slices.Contains(images, image) {
			images = append(images, image)
		}
	}
	c.sandboxImage, c.hung = found, hung
	return images, nil
}

// queryOrder returns the numbers below n in the order of the queries. Those that hung before come
// last, so that the others are queried at all.
func queryOrder(n int, hung func(i int) bool) []int {
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
	errUnlisted   = errors.New("too many containers for one answer of the runtime")
	errNotQueried = errors.New("volumes not queried, because other status calls timed out")
)

// volumes returns the images that a container uses as volumes, or false if the runtime does not
// report them or the container is gone.
func (a *volumeQuery) volumes(ctx context.Context, one *reclaim.Container) ([]string, bool) {
	is, known := a.Collector.unanswered[one.ID]
	switch now := a.uptime(); {
	case known && is.timedOutAt > 0 && now-is.timedOutAt < maxUnanswered:
		a.recordFailure(one, is.err, is.timedOutAt)
		return nil, false
	case a.timeouts >= maxTimeouts: // a timeout costs a whole deadline: continue in the next round
		if a.skipped++; one.State != reclaim.Exited {
			a.recordFailure(one, cmp.Or(is.err, errNotQueried), is.timedOutAt)
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
		a.timeouts++
		late = a.uptime()
	}
	a.recordFailure(one, err, late)
	return nil, false
}

// recordFailure records a container with unknown volumes. One that may run blocks the removal of
// all images for maxUnanswered.
func (a *volumeQuery) recordFailure(one *reclaim.Container, err error, late time.Duration) {
	is, known := a.Collector.unanswered[one.ID]
	if !known {
		is.since = a.uptime()
	}
	is.err, is.timedOutAt = err, late
	a.unanswered[one.ID] = is
	switch {
	case one.State == reclaim.Exited:
		a.v.addProblem(err) // queried again in the next round
	case a.uptime()-is.since < maxUnanswered:
		a.block(fmt.Errorf("%.64q: %w", one.ID, err))
	default:
		a.v.addProblem(fmt.Errorf("volumes of container %.64q unknown for %v, images are removed as if "+
			"it had none: %w", one.ID, maxUnanswered, err))
	}
}

func (a *volumeQuery) block(reason error) {
	if a.blocked == nil {
		a.blocked = reason
	}
}
