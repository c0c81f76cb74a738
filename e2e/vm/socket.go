package vm

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

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

// AskAgent is what the agent answers at a path of its socket.
func (n *Node) AskAgent(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", n.address[guestapi.PortAgent])
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://jettison"+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("agent: %s: %s: %s", path, res.Status, text)
	}
	return text, err
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
