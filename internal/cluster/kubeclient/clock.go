package kubeclient

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// ServerClock estimates the API server's clock from the Date of responses. It starts at the wall
// clock, advances with the monotonic clock, and is set when a Date contradicts it. So it is exact on
// a machine whose clock is right, although Date has whole seconds and arrives late. It is safe for
// concurrent use.
type ServerClock struct {
	WallClock func() time.Time // of this machine

	mu sync.Mutex
	// the API server's clock at a time of this machine; zero: no response yet
	server, machine time.Time
}

// Track returns a configuration for a client that records the time of responses. Only one client, with
// one connection, should use it: the clocks of several API servers may differ.
func (c *ServerClock) Track(config *rest.Config) *rest.Config {
	copied := rest.CopyConfig(config)
	copied.Wrap(func(next http.RoundTripper) http.RoundTripper { return &clockTransport{next: next, clock: c} })
	return copied
}

// At returns the API server's clock at a time of this machine. Before the first response with a Date
// it returns the wall clock.
func (c *ServerClock) At(machine time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at(machine)
}

// at is At. The lock must be held.
func (c *ServerClock) at(machine time.Time) time.Time {
	if c.server.IsZero() {
		return c.WallClock().Round(0)
	}
	return c.server.Add(machine.Sub(c.machine))
}

// FromServer converts a time of the API server's clock to a time of this machine, at the latest now.
func (c *ServerClock) FromServer(at time.Time) time.Time {
	now := time.Now()
	return now.Add(-max(0, c.At(now).Sub(at)))
}

// record records the Date of a response that arrived now.
func (c *ServerClock) record(date, sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	width := time.Second + now.Sub(sent)
	c.server, c.machine = c.at(now), now
	if c.server.Before(date) || c.server.After(date.Add(width)) {
		c.server = date.Add(width / 2)
	}
}

type clockTransport struct {
	next  http.RoundTripper
	clock *ServerClock
}

// RoundTrip sends a request and records the time of the response.
func (t *clockTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return response, err
	}
	if date, parseErr := http.ParseTime(response.Header.Get("Date")); parseErr == nil {
		t.clock.record(date, sent)
	}
	return response, err
}
