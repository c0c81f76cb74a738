package nodepods

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/utils/clock"
)

// loggedSource wraps the source of the pods and logs when lists or watches begin to fail and when
// they work again: a reflector retries some failures without a log line.
type loggedSource struct {
	cache.ListerWatcherWithContext
	source cache.ListerWatcher
	log    *slog.Logger

	mu        sync.Mutex // a reflector may call from two goroutines
	open      bool       // the last list or watch request succeeded
	lastError string     // the last logged error; empty: none since the last success
	loggedAt  time.Time  // when lastError was logged
}

// logInterval is the shortest time between two log lines about failures with different errors.
const logInterval = time.Minute

// watchEnded logs the error that ended a watch. If the request itself failed, observe has logged
// it.
func (n *loggedSource) watchEnded(ctx context.Context, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open && err != nil {
		n.logChange(ctx, err)
	}
}

// observe records the result of a list or watch request and logs a change.
func (n *loggedSource) observe(ctx context.Context, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open = err == nil
	n.logChange(ctx, err)
}

func (n *loggedSource) logChange(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil, expired(err):
	case err == nil:
		if n.lastError != "" {
			n.lastError = ""
			//log: The watch of this node's pods works again.
			n.log.Info("pod watch recovered")
		}
	case n.lastError != cause(err) && time.Since(n.loggedAt) >= logInterval:
		n.lastError, n.loggedAt = cause(err), time.Now()
		//log: A list or watch of this node's pods failed and is retried. The agent keeps using the
		//  pods that it last received.
		//do: See error. Check the API server, and the role of the bridge for pods.
		n.log.Warn("pod watch failed, retrying",
			"error", err)
	}
}

// cause returns an error's text without its URL, which differs in each request.
func cause(err error) string {
	if urlErr := (*url.Error)(nil); errors.As(err, &urlErr) {
		err = urlErr.Err
	}
	return err.Error()
}

// watchListUnsupported reports whether err means that the server does not support streaming lists.
// The reflector then immediately sends a list request, which is observed.
func watchListUnsupported(o metav1.ListOptions, err error) bool {
	return o.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err))
}

// expired reports whether a watch ended because its resource version is too old, which is normal.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// ListWithContext lists the pods and observes the result.
func (n *loggedSource) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	out, err := n.ListerWatcherWithContext.ListWithContext(ctx, o)
	n.observe(ctx, err)
	return out, err
}

// List is ListWithContext for callers without a context.
func (n *loggedSource) List(o metav1.ListOptions) (runtime.Object, error) {
	return n.ListWithContext(context.Background(), o)
}

// WatchWithContext watches the pods and observes the result.
func (n *loggedSource) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface,
	error) {
	out, err := n.ListerWatcherWithContext.WatchWithContext(ctx, o)
	if !watchListUnsupported(o, err) {
		n.observe(ctx, err)
	}
	return out, err
}

// Watch is WatchWithContext for callers without a context.
func (n *loggedSource) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return n.WatchWithContext(context.Background(), o)
}

// IsWatchListSemanticsUnSupported reports whether the source does not support streaming lists.
func (n *loggedSource) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(n.source)
}

// contextClock is a clock with timers that also end with ctx: a reflector's backoff of up to 30 s
// has no context (client-go tools/cache/reflector.go watchList, v0.37.2).
type contextClock struct {
	clock.RealClock
	ctx context.Context
}

// After returns a channel that receives after d, or when ctx ends. It leaks no timer or goroutine.
func (c contextClock) After(d time.Duration) <-chan time.Time {
	out := make(chan time.Time, 1)
	ctx, cancel := context.WithTimeout(c.ctx, d)
	context.AfterFunc(ctx, func() {
		cancel()
		out <- time.Now()
	})
	return out
}
