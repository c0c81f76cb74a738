package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveContainer makes the runtime delete a container and its writable layer. A runtime first
// kills a running container (runtime/v1 api.proto: "forcibly"), so the caller must check the state
// immediately before. The call may be repeated: a missing container is no error. Its timeout is the
// kubelet's (runtimeRequestTimeout).
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.change)
	defer cancel()
	_, err := c.runtime.RemoveContainer(ctx, &runtimev1.RemoveContainerRequest{ContainerId: id})
	if err = c.link.wrap("remove container "+id+" at", err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// RemoveImage makes the image service delete an image under all of its names. handler is the
// Image's RuntimeHandler. No runtime checks whether the image is pinned or in use (containerd 2.4
// internal/cri/server/images/image_remove.go): the caller must check. containerd returns after it
// has deleted the layers without further references from the disk. A missing image is no error.
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

// ImageStatus requests one image by its ID or a name. It returns ErrNotFound for a missing image.
func (c *Client) ImageStatus(ctx context.Context, ref string) (Image, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.status)
	defer cancel()
	verb := "get status of image " + ref + " of"
	res, err := c.images.ImageStatus(ctx,
		&runtimev1.ImageStatusRequest{Image: &runtimev1.ImageSpec{Image: ref}})
	if err != nil {
		return Image{}, c.imageLink.wrap(verb, err)
	}
	if res.GetImage().GetId() == "" { // the CRI's answer for a missing image
		return Image{}, fmt.Errorf("%s runtime %s: %w", verb, c.imageLink.endpoint, ErrNotFound)
	}
	return imageOf(res.GetImage()), nil
}

// SandboxStatus requests one sandbox, and the runtime's reference of the image of its pause
// process; empty: not reported. It returns ErrNotFound for an unknown sandbox.
func (c *Client) SandboxStatus(ctx context.Context, id string) (s PodSandbox, image string,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.status)
	defer cancel()
	verb := "get status of pod sandbox " + id + " of"
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
		return s, "", fmt.Errorf("%s runtime %s: answer has no status", verb, c.link.endpoint)
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

// SandboxImages returns the references of the images that the runtime is configured to use for
// sandboxes; nil: not reported. They come from the verbose status in a runtime-specific form.
func (c *Client) SandboxImages(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	res, err := c.runtime.Status(ctx, &runtimev1.StatusRequest{Verbose: true})
	if err != nil {
		return nil, c.link.wrap("get configuration of", err)
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

// Containers lists the containers of a sandbox in any state, without details from a status.
func (c *Client) Containers(ctx context.Context, sandboxID string) ([]Container, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeouts.list)
	defer cancel()
	return c.listContainers(ctx, &runtimev1.ContainerFilter{PodSandboxId: sandboxID},
		func(one *Container) bool {
			return one.SandboxID == sandboxID // the runtime may ignore the filter
		})
}
