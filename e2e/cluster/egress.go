package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
)

// egress is the API server's connection to kubelets: an HTTP CONNECT proxy on a unix socket that
// maps a node's port to a port of this machine. All guests have the same address, which is known
// only inside them.
type egress struct {
	server *http.Server
	ctx    context.Context // done: each connection closes
	end    context.CancelFunc
	all    sync.WaitGroup

	mu     sync.Mutex
	routes map[string]string // ADDRESS:PORT in a node's status to HOST:PORT on this machine
}

const egressConfig = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport: {uds: {udsName: %q}}
`

// newEgress listens on a socket and writes the API server's egress configuration into a file.
func newEgress(config, socket string) (*egress, error) {
	if err := os.WriteFile(config, fmt.Appendf(nil, egressConfig, socket), 0o600); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	e := &egress{routes: map[string]string{}}
	e.ctx, e.end = context.WithCancel(context.Background())
	e.server = &http.Server{Handler: e}
	e.all.Go(func() { _ = e.server.Serve(l) }) // until close
	return e, nil
}

func (e *egress) close() {
	_ = e.server.Close()
	e.end()
	e.all.Wait()
}

func (e *egress) route(at, to string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.routes[at] = to
}

func (e *egress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	to, ok := e.routes[r.Host]
	e.mu.Unlock()
	if r.Method != http.MethodConnect || !ok {
		http.Error(w, "no route to "+r.Host, http.StatusBadGateway)
		return
	}
	there, err := (&net.Dialer{}).DialContext(e.ctx, "tcp", to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	here, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		there.Close()
		return
	}
	if _, err := io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		here.Close()
		there.Close()
		return
	}
	e.all.Go(func() { e.join(here, buffered, there) })
}

// join copies in both directions until both have ended, or the proxy is closed.
func (e *egress) join(here net.Conn, buffered io.Reader, there net.Conn) {
	release := context.AfterFunc(e.ctx, func() {
		here.Close()
		there.Close()
	})
	defer release()
	defer here.Close()
	defer there.Close()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(there, buffered)
		_ = there.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(here, there)
	here.Close() // ends the other direction, too
	both.Wait()
}
