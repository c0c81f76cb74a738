// Package tunnel carries requests to the agent of another node. On the operator's machine, Tunnel
// runs kubectl exec in the agent's pod. In the pod, jettison tunnel forwards the requests to the
// agent's socket.
//
//	tunnel.go   Tunnel: HTTP transport over one kubectl exec at a time
//	link.go     link: a running kubectl exec
//	kubectl.go  Target: finds the agent's pod, runs kubectl, explains its errors
//	command.go  Command: jettison tunnel
//	serve.go    Serve: HTTP/2 on standard input and output
//	stream.go   a connection of two files
//
// kubectl handles kubeconfig, credential plugins and the streaming protocols, so that the agent's
// binary links no client of the Kubernetes API. HTTP/2 carries all requests in one stream: each
// exec costs the API server a connection, and the agent's container a process.
package tunnel

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"jettison/api"
	"jettison/internal/base/retry"
)

const (
	// openTimeout bounds each query to the API server, and the pod's first answer. Credential plugins
	// may need seconds.
	openTimeout = 30 * time.Second
	// redialDelay is the time between two attempts to connect.
	redialDelay = 3 * time.Second
)

// errConnecting reports that kubectl has not connected within the timeout of a request.
var errConnecting = errors.New("kubectl has not connected yet")

// Tunnel is a transport for requests to the agent of a node. It runs kubectl exec while it is used,
// and again when the connection is lost. It is safe for concurrent use.
type Tunnel struct {
	target Target
	delay  time.Duration // redialDelay; shorter in tests
	ctx    context.Context
	cancel context.CancelFunc
	dials  sync.WaitGroup

	mu      sync.Mutex
	link    *link         // nil: none
	err     error         // why there is no link
	dialing chan struct{} // closed when the attempt to connect ends; nil: no attempt
	dialed  time.Time     // end of the last attempt
}

// New returns a tunnel, which connects with the first request. The caller must call Close after the
// last request has ended.
func New(target Target) *Tunnel {
	target.timeout = openTimeout
	t := &Tunnel{target: target, delay: redialDelay}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Close ends the connection and waits until kubectl has exited.
func (t *Tunnel) Close() {
	t.cancel()
	t.dials.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.link.close()
}

// Open connects. It succeeds if the pod answers, also when the agent itself does not.
func (t *Tunnel) Open(ctx context.Context) error {
	if _, err := t.connect(ctx); err != nil { // bounded by each command of kubectl
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, t.target.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://jettison"+api.PathHealth, nil)
	if err != nil {
		return err
	}
	res, err := t.RoundTrip(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return t.target.noAnswer("exec", t.target.timeout)
	}
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// RoundTrip sends a request over the connection that all requests share, and connects first if
// necessary. While kubectl cannot connect, every request fails with its error.
func (t *Tunnel) RoundTrip(req *http.Request) (*http.Response, error) {
	l, err := t.connect(req.Context())
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	res, err := l.conn.RoundTrip(req)
	if err != nil && !l.usable() {
		err = l.lost(err)
	}
	return res, err
}

// connect returns the connection. It starts an attempt to connect if there is no connection, and
// waits for its end or that of ctx.
func (t *Tunnel) connect(ctx context.Context) (*link, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.link.usable() {
		return t.link, nil
	}
	if t.dialing == nil {
		t.dialing = make(chan struct{})
		t.dials.Go(t.dial)
	}
	dialing := t.dialing
	t.mu.Unlock()
	select {
	case <-dialing:
	case <-ctx.Done():
	}
	t.mu.Lock()
	if t.link.usable() {
		return t.link, nil
	}
	return nil, cmp.Or(t.err, errConnecting)
}

// dial replaces the connection. It is independent of the requests, whose timeouts may be too short
// for kubectl.
func (t *Tunnel) dial() {
	t.mu.Lock()
	old, next := t.link, t.dialed.Add(t.delay)
	t.link = nil
	t.mu.Unlock()
	old.close()
	retry.Sleep(t.ctx, time.Until(next))
	l, err := t.target.dial(t.ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.link, t.err, t.dialed = l, err, time.Now()
	close(t.dialing)
	t.dialing = nil
}
