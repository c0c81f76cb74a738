package kubeclient

import (
	"errors"
	"net/http"

	"k8s.io/client-go/rest"
)

// ErrNotLeading is the error of a write that was not sent because another replica may lead.
var ErrNotLeading = errors.New("not sent: this replica is not the leader")

// Guarded returns a configuration for clients that send a write only while holds returns true.
// holds is called directly before a request is sent: leadership may have ended while the request
// waited for the rate limit, or while the machine was suspended.
func Guarded(c *rest.Config, holds func() bool) *rest.Config {
	copied := rest.CopyConfig(c)
	copied.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &guard{next: next, holds: holds}
	})
	return copied
}

type guard struct {
	next  http.RoundTripper
	holds func() bool
}

// RoundTrip sends a request. It sends a write only while holds returns true.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && !g.holds() {
		if r.Body != nil {
			_ = r.Body.Close() // required of each RoundTripper
		}
		return nil, ErrNotLeading
	}
	return g.next.RoundTrip(r)
}
