package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveContainer has the runtime delete a container and its writable layer. A runtime ends one
// that still runs (runtime/v1 api.proto: "forcibly"), so the caller has asked for its state just
// before. It may be repeated: one that is gone is no error. It waits as long as the kubelet does
// (runtimeRequestTimeout).
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.change)
	defer cancel()
	_, err := c.runtime.RemoveContainer(ctx, &runtimev1.RemoveContainerRequest{ContainerId: id})
	if err = c.link.wrap("remove container "+id+" at", err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// RemoveImage has the image service delete an image under all of its names. handler is the Image's
// RuntimeHandler. No runtime checks whether it is pinned or used (containerd 2.4
// internal/cri/server/images/image_remove.go): the caller has. containerd returns when the last
// reference's layers are gone from the disk. One that is not there is no error.
func (c *Client) RemoveImage(ctx context.Context, id, handler string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.change)
	defer cancel()
	_, err := c.images.RemoveImage(ctx,
		&runtimev1.RemoveImageRequest{Image: &runtimev1.ImageSpec{Image: id, RuntimeHandler: handler}})
	if err = c.imageLink.wrap("remove image "+id+" at", err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// ImageStatus asks for one image by its id or a name. One that is not there is ErrNotFound.
func (c *Client) ImageStatus(ctx context.Context, ref string) (Image, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.status)
	defer cancel()
	verb := "ask status of image " + ref + " of"
	res, err := c.images.ImageStatus(ctx,
		&runtimev1.ImageStatusRequest{Image: &runtimev1.ImageSpec{Image: ref}})
	if err != nil {
		return Image{}, c.imageLink.wrap(verb, err)
	}
	if res.GetImage().GetId() == "" { // how the CRI says that there is none
		return Image{}, fmt.Errorf("%s runtime %s: %w", verb, c.imageLink.endpoint, ErrNotFound)
	}
	return imageOf(res.GetImage()), nil
}

// SandboxStatus asks for one sandbox, and for the image of its own process as the runtime calls it;
// empty: it does not say. A sandbox that the runtime does not know is ErrNotFound.
func (c *Client) SandboxStatus(ctx context.Context, id string) (s PodSandbox, image string,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.status)
	defer cancel()
	verb := "ask status of pod sandbox " + id + " of"
	res, err := c.sandboxStatus(ctx, id, true)
	err = c.link.wrap(verb, err)
	refused := errors.Is(err, ErrTooLarge)
	if refused {
		res, err = c.sandboxStatus(ctx, id, false)
		err = c.link.wrap(verb, err)
	}
	if err != nil {
		return s, "", err
	}
	if res.GetStatus() == nil {
		return s, "", fmt.Errorf("%s runtime %s: no status in its answer", verb, c.link.endpoint)
	}
	status := res.GetStatus()
	s = sandboxOf(&runtimev1.PodSandbox{
		Id: id, Metadata: status.GetMetadata(), State: status.GetState(),
		CreatedAt:   status.GetCreatedAt(),
		Annotations: status.GetAnnotations(), RuntimeHandler: status.GetRuntimeHandler(),
	})
	sandboxDetailOf(res).fill(&s)
	s.Refused = refused
	return s, parseVerbose(res.GetInfo()).Image, nil
}

// SandboxImages are the references of the images for sandboxes, as the runtime's configuration has
// them; none: it does not say. It is in the verbose status, in the runtime's own shape.
func (c *Client) SandboxImages(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	res, err := c.runtime.Status(ctx, &runtimev1.StatusRequest{Verbose: true})
	if err != nil {
		return nil, c.link.wrap("ask configuration of", err)
	}
	var config runtimeConfig
	_ = json.Unmarshal([]byte(res.GetInfo()["config"]), &config)
	var out []string
	for _, ref := range []string{config.SandboxImage, config.PinnedImages["sandbox"],
		config.PauseImage} {
		if ref != "" {
			out = append(out, ref)
		}
	}
	return out, nil
}

// Containers lists the containers of a sandbox in any state, without what only a status tells.
func (c *Client) Containers(ctx context.Context, sandboxID string) ([]Container, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	return c.listContainers(ctx, &runtimev1.ContainerFilter{PodSandboxId: sandboxID},
		func(one *Container) bool {
			return one.SandboxID == sandboxID // a runtime may not have filtered
		})
}
