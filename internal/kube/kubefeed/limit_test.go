package kubefeed

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// lost answers requests without the end of the body.
type lost struct{}

func (lost) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: lostBody{r.Context()}}, nil
}

type lostBody struct{ ctx context.Context }

func (b lostBody) Read([]byte) (int, error) {
	select {
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-time.After(24 * time.Hour):
		return 0, io.EOF
	}
}

func (lostBody) Close() error { return nil }

// A response without an end, for example behind a proxy, ends after the API server's limit. A limit
// of the caller stays.
func TestLostResponsesEnd(t *testing.T) {
	for _, c := range []struct {
		query          string
		deadline, want time.Duration // deadline 0: none
	}{
		{"watch=true&timeoutSeconds=300", 0, 6 * time.Minute},
		{"watch=true&timeoutSeconds=300", time.Minute, time.Minute},
		{"watch=true", 0, 24 * time.Hour},
		{"limit=500", 0, 5 * time.Minute},
		{"limit=500", 10 * time.Minute, 10 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			if c.deadline > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), c.deadline)
			}
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api/api/v1/pods?"+c.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			out, err := LimitRequests(lost{}).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = out.Body.Close() }()
			_, err = io.ReadAll(out.Body)
			if took := time.Since(began); took != c.want || c.want < 24*time.Hour && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s with deadline %v: body ended after %v with %v, want %v", c.query, c.deadline, took, err, c.want)
			}
		})
	}
}
