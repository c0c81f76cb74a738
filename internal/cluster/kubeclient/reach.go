package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"jettison/internal/base/logthrottle"
)

// answerLimit is the time after which a read without an answer is reported. Another request may be
// answered meanwhile: then the server is only slow. A write may wait for a webhook, and is reported
// when it times out.
const answerLimit = 4 * time.Second

// Reach observes whether the API server answers, and logs at most one line in ten seconds while it
// does not. It is safe for concurrent use.
type Reach struct {
	host  string
	log   *slog.Logger
	limit time.Duration // answerLimit; tests shorten it

	mu       sync.Mutex
	err      error     // of the last request; nil: answered, or not sent yet
	answered time.Time // last answer
	loggedAt time.Time
}

// NewReach returns a Reach for the clients of a configuration that are created from now on.
func NewReach(c *rest.Config, log *slog.Logger) *Reach {
	r := &Reach{host: c.Host, log: log, limit: answerLimit}
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return &reachTransport{r, next} })
	return r
}

// Err returns the reason why the API server is unreachable, with its address; nil: it answered last,
// or was not asked yet.
func (r *Reach) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		return nil
	}
	return fmt.Errorf("API server %s is unreachable: %w", r.host, r.err)
}

// answer records an answer of any status.
func (r *Reach) answer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		//log: The API server answers again.
		r.log.Info("API server reachable", "api", r.host)
	}
	r.err, r.answered = nil, time.Now()
}

// fail records a request without an answer, unless another one was answered since it was sent.
func (r *Reach) fail(sent time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered.After(sent) {
		return
	}
	r.err = err
	if now := time.Now(); now.Sub(r.loggedAt) >= logthrottle.Every {
		r.loggedAt = now
		//log: The API server at the address api does not answer. The program retries.
		//do: Check the address, the network and the certificate in error.
		r.log.Error("API server unreachable, retrying", "api", r.host, "error", err)
	}
}

// Quiet returns a logger without the lines that follow from an unreachable API server: client-go
// logs each retry.
func (r *Reach) Quiet(log *slog.Logger) *slog.Logger {
	return slog.New(quietHandler{log.Handler(), r})
}

// quietHandler drops warnings and errors while the API server is unreachable.
type quietHandler struct {
	slog.Handler
	reach *Reach
}

// Handle drops warnings and errors while the API server is unreachable.
func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && h.reach.Err() != nil {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the filter.
func (h quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(attrs), h.reach}
}

// WithGroup keeps the filter.
func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name), h.reach}
}

// reachTransport sends requests and reports their ends to a Reach.
type reachTransport struct {
	reach *Reach
	next  http.RoundTripper
}

// WrappedRoundTripper returns the transport that sends, for client-go.
func (t *reachTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip sends a request and records whether it was answered.
func (t *reachTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := time.Now()
	if r.Method == http.MethodGet {
		late := time.AfterFunc(t.reach.limit, func() {
			t.reach.fail(sent, fmt.Errorf("no answer within %v", t.reach.limit))
		})
		defer late.Stop()
	}
	res, err := t.next.RoundTrip(r)
	switch {
	case err == nil:
		t.reach.answer()
	case errors.Is(err, ErrNotLeading), errors.Is(err, context.Canceled): // ended by this program
	case errors.Is(err, context.DeadlineExceeded):
		t.reach.fail(sent, fmt.Errorf("no answer within %v", time.Since(sent).Round(time.Second)))
	default:
		t.reach.fail(sent, err)
	}
	return res, err
}
