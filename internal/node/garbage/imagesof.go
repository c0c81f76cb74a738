package garbage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"jettison/cri"
	"jettison/reclaim"
)

var errUnlisted = errors.New("too many containers for one answer of the runtime")

// imageUse are images in use that containers do not name, or name otherwise than the list of images.
type imageUse struct {
	images  []string
	unknown error // first reason why any image may be in use; nil: images is complete
	recent  error // the same, unknown for less than maxUnanswered
	// first error of an object whose answer only its own images need, and the number of these objects
	left      error
	leftCount int
}

func (u *imageUse) add(images ...string) {
	for _, image := range images {
		if image != "" && !slices.Contains(u.images, image) {
			u.images = append(u.images, image)
		}
	}
}

// fail records an object without an answer. If it may run, any image may be in use.
func (u *imageUse) fail(mayRun, recent bool, err error) {
	if mayRun {
		if u.unknown = cmp.Or(u.unknown, err); recent {
			u.recent = cmp.Or(u.recent, err)
		}
		return
	}
	u.left = cmp.Or(u.left, err)
	u.leftCount++
}

// inUse sets ImagesInUse: images in use in addition to those that containers name. These are image
// volumes, images that containers run and the list no longer names so, images of sandboxes, and the
// sandbox images of the runtime's configuration.
//
// A container that may run and does not answer is an error for maxUnanswered, because any image might
// be its own or its volume; all together are one for maxBlocked without a break. Exited ones are left
// out, because their volumes will not be used again. (The kubelet gives up on both, weakness 17.)
func (c *Collector) inUse(ctx context.Context, v *view) error {
	u := &imageUse{}
	for _, find := range []func(context.Context, *view, *imageUse) error{
		c.findVolumes, c.findOwnImages, c.findSandboxImages,
	} {
		if err := find(ctx, v, u); err != nil {
			return err
		}
		if u.recent != nil && c.blocks() {
			return fmt.Errorf("find images in use: %w", u.recent)
		}
	}
	if u.recent == nil {
		c.blockedSince = 0
	}
	if u.unknown != nil {
		v.addProblem(fmt.Errorf("images in use unknown for %v, images are removed as if unused: %w",
			maxUnanswered, u.unknown))
	}
	if u.left != nil {
		v.addProblem(fmt.Errorf("images of %d exited containers unknown, the first: %w", u.leftCount, u.left))
	}
	v.look.ImagesInUse = slices.Concat(u.images, c.configImages)
	return nil
}

// blocks reports whether unknown images in use block the removal of images.
func (c *Collector) blocks() bool {
	if c.blockedSince == 0 {
		c.blockedSince = max(c.uptime(), 1)
	}
	return c.uptime()-c.blockedSince < maxBlocked
}

// recent reports whether an object has had no answer for less than maxUnanswered.
func (c *Collector) recent(since time.Duration) bool { return c.uptime()-since < maxUnanswered }

// findVolumes adds the images that containers use as volumes.
func (c *Collector) findVolumes(ctx context.Context, v *view, u *imageUse) error {
	if err := c.unlisted.query(ctx, c.uptime, v.unlisted, func(context.Context, string) (struct{}, error) {
		return struct{}{}, errUnlisted
	}); err != nil {
		return err
	}
	for _, id := range v.unlisted {
		u.fail(true, c.recent(c.unlisted[id].since), fmt.Errorf("containers of sandbox %.64q: %w", id, errUnlisted))
	}
	all := v.look.Containers
	ids := make([]string, 0, len(all))
	for i := range all {
		if all[i].State != reclaim.StateAbsent {
			ids = append(ids, all[i].ID)
		}
	}
	err := c.volumes.query(ctx, c.uptime, ids, func(ctx context.Context, id string) ([]string, error) {
		s, err := c.o.Runtime.ContainerStatus(ctx, id)
		if errors.Is(err, cri.ErrNotFound) {
			return nil, nil // it is gone, and so are its volumes
		}
		return s.ImageVolumes, err
	})
	for i := range all {
		one := &all[i]
		if a := c.volumes[one.ID]; a.known {
			u.add(a.value...)
		} else if a.err != nil {
			u.fail(one.State != reclaim.Exited, c.recent(a.since), fmt.Errorf("volumes of container %.64q: %w", one.ID, a.err))
		}
	}
	return err
}

// findOwnImages adds the IDs of images that containers run from, although the runtime lists them
// under other names. If the runtime knows no image by such a reference, the image has lost its
// names, so images without names stay.
func (c *Collector) findOwnImages(ctx context.Context, v *view, u *imageUse) error {
	refs, mayRun := unidentified(v.look.Containers, c.listedImages)
	err := c.ownImages.query(ctx, c.uptime, refs, func(ctx context.Context, ref string) (string, error) {
		image, err := c.o.Runtime.ImageStatus(ctx, ref)
		if errors.Is(err, cri.ErrNotFound) {
			return "", nil
		}
		return image.ID, err
	})
	for _, ref := range refs {
		a, runs := c.ownImages[ref], mayRun[ref] != ""
		switch u.add(a.value); {
		case a.known:
			v.look.KeepUnnamed = v.look.KeepUnnamed || a.value == "" && runs
		case a.err != nil:
			u.fail(runs, c.recent(a.since), fmt.Errorf("image %.160q of container %.64q: %w", ref, mayRun[ref], a.err))
		}
	}
	return err
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

// findSandboxImages adds the images of sandboxes. For a sandbox that does not answer, the images of
// the runtime's configuration and the pinned images still protect its image.
func (c *Collector) findSandboxImages(ctx context.Context, v *view, u *imageUse) error {
	ids := make([]string, len(v.look.Sandboxes))
	for i := range ids {
		ids[i] = v.look.Sandboxes[i].ID
	}
	err := c.sandboxImages.query(ctx, c.uptime, ids, func(ctx context.Context, id string) (string, error) {
		_, image, err := c.o.Runtime.SandboxStatus(ctx, id)
		return image, err
	})
	for _, id := range ids {
		u.add(c.sandboxImages[id].value)
	}
	return err
}
