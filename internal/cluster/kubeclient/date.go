package kubeclient

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Dates is by how much the API server's clock is before ours, or behind, as its last answer said.
// It may be asked by any goroutine.
type Dates struct {
	mu       sync.Mutex
	said, at time.Time // its time, and ours then; zero: it has not said it
}

// Dated is a configuration whose clients note what time it is where their requests are answered.
func (d *Dates) Dated(c *rest.Config) *rest.Config {
	own := rest.CopyConfig(c)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return &dated{next: next, dates: d} })
	return own
}

// agree is up to what difference two clocks are as one: what is said has whole seconds, and comes
// late.
const agree = 2 * time.Second

// Ahead is by how much the API server's clock is before one of ours, which says what it had at a
// time; below 0: it is behind.
func (d *Dates) Ahead(ours func(time.Time) time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.said.IsZero() {
		return 0
	}
	ahead := d.said.Sub(ours(d.at))
	if ahead.Abs() <= agree {
		return 0
	}
	return ahead
}

type dated struct {
	next  http.RoundTripper
	dates *Dates
}

// RoundTrip sends a request, and notes the time of the answer.
func (t *dated) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return answer, err
	}
	if said, wrong := http.ParseTime(answer.Header.Get("Date")); wrong == nil {
		t.dates.mu.Lock()
		t.dates.said, t.dates.at = said, time.Now()
		t.dates.mu.Unlock()
	}
	return answer, err
}
