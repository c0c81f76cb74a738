package vm

import (
	"context"
	"errors"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// NetworkReady returns nil if the runtime can give pods their own network, or the reason why it
// cannot.
func (n *Node) NetworkReady(ctx context.Context) error {
	res, err := n.client.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return err
	}
	for _, c := range res.Status.Conditions {
		if c.Type == "NetworkReady" {
			if c.Status {
				return nil
			}
			return fmt.Errorf("%s: %s", c.Reason, c.Message)
		}
	}
	return errors.New("the runtime's status has no network condition")
}

// IP returns the address of a pod with its own network.
func (p *Pod) IP(ctx context.Context) (string, error) {
	res, err := p.node.client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.Sandbox})
	if err != nil {
		return "", err
	}
	if ip := res.Status.GetNetwork().GetIp(); ip != "" {
		return ip, nil
	}
	return "", fmt.Errorf("pod %s has no address of its own", p)
}
