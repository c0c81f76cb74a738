package vm

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"

	"jettison/api"
	"jettison/e2e/guestapi"
)

// API returns a client of the agent's socket, with the rights of a root process on the node. The
// guest closes the connection if no process listens.
func (n *Node) API() *api.Client {
	return api.New(api.Options{Socket: guestapi.AgentSocket, Limit: callDeadline, Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", n.address[guestapi.PortAgent])
	}})
}

// AskAgent returns the agent's answer at a path of its socket.
func (n *Node) AskAgent(ctx context.Context, path string) ([]byte, error) {
	c := n.AgentClient()
	defer c.CloseIdleConnections()
	return Ask(ctx, c, path)
}

// dialLimit bounds one attempt to connect. QEMU accepts one connection at a time and drops others,
// which the kernel would retry after one, three and seven seconds.
const dialLimit = 500 * time.Millisecond

// AgentClient returns a client of the agent's socket that keeps its connection, as scrapers do. The
// caller closes it.
func (n *Node) AgentClient() *http.Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		for {
			conn, err := (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, "tcp", n.address[guestapi.PortAgent])
			if err == nil || ctx.Err() != nil || !os.IsTimeout(err) {
				return conn, err
			}
		}
	}
	return &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1, DialContext: dial}}
}

// Ask returns the agent's answer at a path, with a client of AgentClient.
func Ask(ctx context.Context, c *http.Client, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
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

// PutPods sends pod objects to the agent.
func (n *Node) PutPods(ctx context.Context, pods ...*Pod) error {
	objects := make([]*v1.Pod, 0, len(pods))
	for _, p := range pods {
		objects = append(objects, p.Object)
	}
	_, err := n.API().PutPods(ctx, objects)
	return err
}

// Relay forwards a unix socket of this machine to the agent's socket, for programs that support
// only unix sockets, until ctx ends. It closes a client's connection if no process listens in the
// guest.
func (n *Node) Relay(ctx context.Context, path string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("relay the agent's socket: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go n.relay(ctx, c)
		}
	}()
	return nil
}

// relay copies in both directions until one side closes.
func (n *Node) relay(ctx context.Context, here net.Conn) {
	there, err := new(net.Dialer).DialContext(ctx, "tcp", n.address[guestapi.PortAgent])
	if err != nil {
		_ = here.Close()
		return
	}
	hangUp := context.AfterFunc(ctx, func() { _, _ = here.Close(), there.Close() })
	defer hangUp()
	go func() {
		_, _ = io.Copy(there, here)
		_, _ = here.Close(), there.Close()
	}()
	_, _ = io.Copy(here, there)
	_, _ = here.Close(), there.Close()
}
