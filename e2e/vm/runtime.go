package vm

import (
	"context"
	"fmt"
	"path"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunContainer creates and starts a container in a sandbox of RunSandbox and returns its id. It
// makes states that Run does not make, such as earlier attempts of a container.
func (n *Node) RunContainer(ctx context.Context, sandbox string, in *cri.PodSandboxConfig, c *cri.ContainerConfig) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	if dir := in.GetLogDirectory(); dir != "" {
		if _, err := n.Shell(ctx, "mkdir -p "+path.Dir(path.Join(dir, c.GetLogPath()))); err != nil {
			return "", err
		}
	}
	created, err := n.client.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sandbox, SandboxConfig: in, Config: c})
	if err == nil {
		id = created.ContainerId
		_, err = n.client.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id})
	}
	if err != nil {
		return "", fmt.Errorf("run container %s of pod %s: %w", c.GetMetadata().GetName(), in.GetMetadata().GetName(), err)
	}
	return id, nil
}

// RunSandbox creates a sandbox from a config and returns its id.
func (n *Node) RunSandbox(ctx context.Context, config *cri.PodSandboxConfig) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	res, err := n.client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	return res.GetPodSandboxId(), err
}

// StopSandbox stops a sandbox.
func (n *Node) StopSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	_, err := n.client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

// Inventory has all sandboxes, containers and images of the runtime.
type Inventory struct {
	Sandboxes  []*cri.PodSandbox
	Containers []*cri.Container
	Images     []*cri.Image
}

// Inventory reads all sandboxes, containers and images from the runtime.
func (n *Node) Inventory(ctx context.Context) (out Inventory, err error) {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	sandboxes, err := n.client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return out, err
	}
	containers, err := n.client.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return out, err
	}
	images, err := n.images.ListImages(ctx, &cri.ListImagesRequest{})
	return Inventory{sandboxes.GetItems(), containers.GetContainers(), images.GetImages()}, err
}
