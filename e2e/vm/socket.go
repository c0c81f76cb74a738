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

// API is a client of the agent's socket, as a process of root on the node would be. Where no process listens, the guest hangs up.
func (n *Node) API() *api.Client {
	return api.New(api.Options{Socket: guestapi.AgentSocket, Limit: callDeadline, Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", n.address[guestapi.PortAgent])
	}})
}

// AskAgent is what the agent answers at a path of its socket.
func (n *Node) AskAgent(ctx context.Context, path string) ([]byte, error) {
	c := n.AgentClient()
	defer c.CloseIdleConnections()
	return Ask(ctx, c, path)
}

// dialLimit is for one try to connect. QEMU takes one connection at a time and forgets others, which the kernel would try again after
// one, three, seven seconds.
const dialLimit = 500 * time.Millisecond

// AgentClient is a client of the agent's socket that keeps its connection, as those do that read metrics. Its owner closes it.
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

// Ask is what the agent answers at a path, by one of its clients.
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

// PutPods hands the objects of pods to the agent.
func (n *Node) PutPods(ctx context.Context, pods ...*Pod) error {
	objects := make([]*v1.Pod, 0, len(pods))
	for _, p := range pods {
		objects = append(objects, p.Object)
	}
	_, err := n.API().PutPods(ctx, objects)
	return err
}

// Relay has a unix socket of this machine lead to the agent's, for programs that know unix sockets only, until ctx ends. Where no process
// listens in the guest, who connects is hung up on.
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

// relay copies both ways until one side has hung up.
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
