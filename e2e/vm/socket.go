package vm

import (
	"context"
	"net"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/e2e/guestapi"
)

// API is a client of the agent's socket, as a process of root on the node would be. Where no process listens, the guest hangs up.
func (n *Node) API() *api.Client {
	return api.New(api.Options{Socket: guestapi.AgentSocket, Limit: callDeadline, Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", n.address[guestapi.PortAgent])
	}})
}

// PutPods hands the objects of pods to the agent.
func (n *Node) PutPods(ctx context.Context, pods ...*Pod) error {
	objects := make([]*v1.Pod, 0, len(pods))
	for _, p := range pods {
		objects = append(objects, p.Object)
	}
	_, err := n.API().PutPods(ctx, objects)
	return err
}
