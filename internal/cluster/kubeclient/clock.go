package kubeclient

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// ServerClock measures the difference between the API server's clock and ours, from the Date header
// of its last response. It is safe for concurrent use.
type ServerClock struct {
	mu                     sync.Mutex
	serverTime, receivedAt time.Time // of the last response; zero: none yet
}

// Track returns a configuration for clients that record the time of responses.
func (d *ServerClock) Track(c *rest.Config) *rest.Config {
	own := rest.CopyConfig(c)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return &clockTransport{next: next, clock: d} })
	return own
}

// tolerance is the difference below which two clocks count as equal: Date has whole seconds and
// arrives late.
const tolerance = 2 * time.Second

// Skew returns the API server's clock minus the clock that ours reads; below 0 the API server's is
// behind.
func (d *ServerClock) Skew(ours func(time.Time) time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.serverTime.IsZero() {
		return 0
	}
	ahead := d.serverTime.Sub(ours(d.receivedAt))
	if ahead.Abs() <= tolerance {
		return 0
	}
	return ahead
}

type clockTransport struct {
	next  http.RoundTripper
	clock *ServerClock
}

// RoundTrip sends a request and records the time of the response.
func (t *clockTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return answer, err
	}
	if said, wrong := http.ParseTime(answer.Header.Get("Date")); wrong == nil {
		t.clock.mu.Lock()
		t.clock.serverTime, t.clock.receivedAt = said, time.Now()
		t.clock.mu.Unlock()
	}
	return answer, err
}
