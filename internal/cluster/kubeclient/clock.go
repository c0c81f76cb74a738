package kubeclient

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// ServerClock measures the difference between the clocks of the API server and of this machine,
// from the Date header of the last response. It is safe for concurrent use.
type ServerClock struct {
	mu                     sync.Mutex
	serverTime, receivedAt time.Time // of the last response; zero: none yet
}

// Track returns a configuration for clients that record the time of responses.
func (d *ServerClock) Track(c *rest.Config) *rest.Config {
	copied := rest.CopyConfig(c)
	copied.Wrap(func(next http.RoundTripper) http.RoundTripper { return &clockTransport{next: next, clock: d} })
	return copied
}

// tolerance is the difference below which two clocks count as equal: Date has whole seconds and
// arrives late.
const tolerance = 2 * time.Second

// Skew returns the API server's clock minus the caller's clock, or 0 within tolerance or before the
// first response. toLocal converts a time of this machine to the caller's clock.
func (d *ServerClock) Skew(toLocal func(time.Time) time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.serverTime.IsZero() {
		return 0
	}
	skew := d.serverTime.Sub(toLocal(d.receivedAt))
	if skew.Abs() <= tolerance {
		return 0
	}
	return skew
}

type clockTransport struct {
	next  http.RoundTripper
	clock *ServerClock
}

// RoundTrip sends a request and records the time of the response.
func (t *clockTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return response, err
	}
	if date, parseErr := http.ParseTime(response.Header.Get("Date")); parseErr == nil {
		t.clock.mu.Lock()
		t.clock.serverTime, t.clock.receivedAt = date, time.Now()
		t.clock.mu.Unlock()
	}
	return response, err
}
