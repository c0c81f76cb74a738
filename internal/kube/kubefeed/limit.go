package kubefeed

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"
)

// client-go relies on the API server to end a watch after its timeoutSeconds.
const (
	// extraTime is added to timeoutSeconds.
	extraTime = time.Minute
	// requestLimit is the limit of other requests without a deadline: a slow connection may take
	// minutes for a list.
	requestLimit = 5 * time.Minute
)

// LimitRequests returns a transport that ends watches that the API server should have ended, and
// other requests without a deadline after five minutes. A proxy may lose the rest of a response and
// still answer the pings of the connection.
func LimitRequests(next http.RoundTripper) http.RoundTripper { return &limitTransport{next} }

type limitTransport struct{ next http.RoundTripper }

// RoundTrip sends a request with a limit, which includes the response's body.
func (t *limitTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	limit := requestLimit
	if q := r.URL.Query(); q.Has("watch") {
		seconds, err := strconv.Atoi(q.Get("timeoutSeconds"))
		if err != nil {
			return t.next.RoundTrip(r)
		}
		limit = time.Duration(seconds)*time.Second + extraTime
	} else if _, ok := r.Context().Deadline(); ok {
		return t.next.RoundTrip(r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	out, err := t.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	out.Body = &limitedBody{out.Body, cancel}
	return out, nil
}

// limitedBody is a body that releases the limit when it is closed.
type limitedBody struct {
	io.ReadCloser
	release context.CancelFunc
}

// Close closes the body.
func (b *limitedBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}
