package kubeclient

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Dates is by how much the API server's clock is before ours, or behind, as its last answer said.
// It may be asked by any goroutine.
type ServerClock struct {
	mu                     sync.Mutex
	serverTime, receivedAt time.Time // its time, and ours then; zero: it has not said it
}

// Dated is a configuration whose clients note what time it is where their requests are answered.
func (d *ServerClock) Track(c *rest.Config) *rest.Config {
	own := rest.CopyConfig(c)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return &clockTransport{next: next, clock: d} })
	return own
}

// agree is up to what difference two clocks are as one: what is said has whole seconds, and comes
// late.
const tolerance = 2 * time.Second

// Ahead is by how much the API server's clock is before one of ours, which says what it had at a
// time; below 0: it is behind.
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

// RoundTrip sends a request, and notes the time of the answer.
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
