package kubeclient

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// guardServer is an API server that records the methods of requests.
type guardServer struct {
	*httptest.Server
	mu       sync.Mutex
	received []string
}

func newGuardServer(t *testing.T, secure bool) *guardServer {
	s := &guardServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.received = append(s.received, r.Method)
		if agent := r.UserAgent(); agent != "program/1 test" {
			t.Errorf("user agent = %q, want program/1 test", agent)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}`)
	}))
	if s.EnableHTTP2 = secure; secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func (s *guardServer) requests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.received, " ")
}

// update writes a node.
func (s *guardServer) update(t *testing.T, c *rest.Config, holds func() bool) (write func() error) {
	t.Helper()
	c.Host, c.UserAgent, c.Insecure = s.URL, "program/1", true
	client, err := New(Guarded(c, holds), "test", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return func() error {
		_, err := client.CoreV1().Nodes().Update(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.UpdateOptions{})
		return err
	}
}

// A replica that does not lead sends nothing with a guarded client.
func TestGuard(t *testing.T) {
	s, leads := newGuardServer(t, false), false
	write := s.update(t, &rest.Config{}, func() bool { return leads })
	if err := write(); !errors.Is(err, ErrNotLeading) {
		t.Errorf("write without leadership = %v, want ErrNotLeading", err)
	}
	leads = true
	if err := write(); err != nil {
		t.Errorf("write with leadership failed: %v", err)
	}
	if got := s.requests(); got != "PUT" {
		t.Errorf("requests = %q, want PUT", got)
	}
}

// A write whose leadership ends after the request was checked is not sent, on a new connection or
// on one in use: the process may be stopped in between for longer than the Lease lasts.
func TestGuardOfConnections(t *testing.T) {
	for name, secure := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			s := newGuardServer(t, secure)
			var leads atomic.Bool
			leads.Store(true)
			write := s.update(t, &rest.Config{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				leads.Store(false)
				return new(net.Dialer).DialContext(ctx, network, address)
			}}, leads.Load)
			if err := write(); !errors.Is(err, ErrNotLeading) {
				t.Errorf("write while the leadership ends during the dial = %v, want ErrNotLeading", err)
			}
			if got := s.requests(); got != "" {
				t.Errorf("requests = %q, want none", got)
			}
			var checks, last atomic.Int32
			last.Store(1 << 20)
			write = s.update(t, &rest.Config{}, func() bool { return checks.Add(1) <= last.Load() })
			if err := write(); err != nil {
				t.Fatalf("write with leadership failed: %v", err)
			}
			last.Store(checks.Load() + 1) // the next request passes the first check
			if err := write(); !errors.Is(err, ErrNotLeading) {
				t.Errorf("write while the leadership ends before the connection is used = %v, want ErrNotLeading", err)
			}
			if got := s.requests(); got != "PUT" {
				t.Errorf("requests = %q, want PUT", got)
			}
		})
	}
}
