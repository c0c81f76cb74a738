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

// imageLookup is the look-up of an image by a reference of its containers.
type imageLookup struct {
	id       string // empty: the runtime knows no such image
	answered bool
	since    time.Duration // uptime of the first round without an answer
	// uptime of the last timeout, which costs a whole deadline; 0: the last call did not time out
	timedOutAt time.Duration
	err        error // of the last call
}

// errNotLookedUp: the next round looks the image up.
var errNotLookedUp = errors.New("not looked up, because other status calls timed out")

// ownImagesOf returns the IDs of images that containers run from, although the runtime lists them
// under other names. Each reference is looked up once, because the answer does not change while a
// container exists. A container that may run and whose image is unknown blocks the removal of all
// images for maxUnanswered: it could be any of them. If the runtime knows no image by that reference,
// the image has lost its names, so images without names stay.
func (c *Collector) ownImagesOf(ctx context.Context, v *view) (images []string, err error) {
	refs, mayRun := unidentified(v.look.Containers, c.listedImages)
	found, timeouts, now := make(map[string]imageLookup, len(refs)), 0, max(c.uptime(), 1)
	var blocked error
	for _, i := range queryOrder(len(refs), func(i int) bool { return c.lookups[refs[i]].timedOutAt > 0 }) {
		ref := refs[i]
		l, known := c.lookups[ref]
		if !known {
			l.since, l.err = now, errNotLookedUp
		}
		hung := l.timedOutAt > 0 && now-l.timedOutAt < maxUnanswered
		if !l.answered && !hung && timeouts < maxTimeouts {
			if l = c.lookUp(ctx, ref, l); ctx.Err() != nil {
				maps.Copy(c.lookups, found)
				return nil, ctx.Err()
			}
			if l.timedOutAt > 0 {
				timeouts++
			}
		}
		found[ref] = l
		switch {
		case l.id != "":
			if !slices.Contains(images, l.id) {
				images = append(images, l.id)
			}
		case l.answered:
			v.look.KeepUnnamed = v.look.KeepUnnamed || mayRun[ref] != ""
		case mayRun[ref] != "" && now-l.since < maxUnanswered:
			blocked = cmp.Or(blocked, fmt.Errorf("image %.160q of container %.64q: %w", ref, mayRun[ref], l.err))
		default:
			v.addProblem(fmt.Errorf("image %.160q unknown: %w", ref, l.err))
		}
	}
	c.lookups = found
	return images, blocked
}

// lookUp looks an image up.
func (c *Collector) lookUp(ctx context.Context, ref string, l imageLookup) imageLookup {
	image, err := c.o.Runtime.ImageStatus(ctx, ref)
	l.timedOutAt, l.err = 0, err
	switch {
	case err == nil, errors.Is(err, cri.ErrNotFound):
		l.id, l.answered = image.ID, true
	case errors.Is(err, context.DeadlineExceeded):
		l.timedOutAt = max(c.uptime(), 1)
	}
	return l
}

// unidentified returns the references by which to look up images of containers that name no listed
// image, and for each a container that may run, if there is one.
func unidentified(all []reclaim.Container, listed []reclaim.Image) (refs []string, mayRun map[string]string) {
	mayRun = map[string]string{}
	for _, i := range reclaim.Unidentified(all, listed) {
		one := &all[i]
		ref := exactReference(one.Images)
		if one.State == reclaim.StateAbsent || ref == "" {
			continue
		}
		id, seen := mayRun[ref]
		if !seen {
			refs = append(refs, ref)
		}
		if one.State != reclaim.Exited {
			id = one.ID
		}
		mayRun[ref] = id
	}
	return refs, mayRun
}

// exactReference returns a reference that cannot move to another image, or else the first one.
func exactReference(refs []string) string {
	if i := slices.IndexFunc(refs, reclaim.Exact); i >= 0 {
		return refs[i]
	}
	return cmp.Or(refs...)
}
