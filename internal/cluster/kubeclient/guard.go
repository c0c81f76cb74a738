package kubeclient

import (
	"errors"
	"net/http"

	"k8s.io/client-go/rest"
)

// ErrNotLeading is of a write that was not sent, since another replica may act by now.
var ErrNotLeading = errors.New("not sent: this replica does not lead")

// Guarded is a configuration whose clients send no write while holds says no. It is asked last,
// right before a request goes out: whoever waited for its turn, or slept with its whole machine, is
// not believed to lead still.
func Guarded(c *rest.Config, holds func() bool) *rest.Config {
	own := rest.CopyConfig(c)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &guard{next: next, holds: holds}
	})
	return own
}

type guard struct {
	next  http.RoundTripper
	holds func() bool
}

// RoundTrip sends a request, if it may be sent.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && !g.holds() {
		if r.Body != nil {
			_ = r.Body.Close() // as RoundTrip has to, whatever it does
		}
		return nil, ErrNotLeading
	}
	return g.next.RoundTrip(r)
}
