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

// noted is where the pods come from, and says whether they do: a reflector tries some failures
// again without a word.
type loggedSource struct {
	cache.ListerWatcherWithContext
	source cache.ListerWatcher
	log    *slog.Logger

	mu        sync.Mutex // a reflector may ask from two goroutines
	open      bool       // the last list or watch was answered
	lastError string     // as it was said last; empty: it does not fail, or that was not said
	loggedAt  time.Time  // when that was
}

// sayEvery bounds how often it is said that a watch fails, each time for another reason.
const logInterval = time.Minute

// brokeOff says that what was answered has ended with an error. Where it was not answered that is
// said already.
func (n *loggedSource) watchEnded(ctx context.Context, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open && err != nil {
		n.logChange(ctx, err)
	}
}

// note says that a list, or a watch, has failed, or that they come again.
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
			n.log.Info("this node's pods are watched again")
		}
	case n.lastError != cause(err) && time.Since(n.loggedAt) >= logInterval:
		n.lastError, n.loggedAt = cause(err), time.Now()
		n.log.Warn("the watch of this node's pods broke off and begins anew: what is known of them stays",
			"error", err)
	}
}

// cause is an error without the address that was asked, which is another each time.
func cause(err error) string {
	if asked := (*url.Error)(nil); errors.As(err, &asked) {
		err = asked.Err
	}
	return err.Error()
}

// notUnderstood tells that a server does not know a list as a watch: the reflector lists then, at
// once, and that is told.
func watchListUnsupported(o metav1.ListOptions, err error) bool {
	return o.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err))
}

// expired tells that a watch has ended as watches do.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// ListWithContext lists them.
func (n *loggedSource) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	out, err := n.ListerWatcherWithContext.ListWithContext(ctx, o)
	n.observe(ctx, err)
	return out, err
}

// List is for who has no context.
func (n *loggedSource) List(o metav1.ListOptions) (runtime.Object, error) {
	return n.ListWithContext(context.Background(), o)
}

// WatchWithContext watches them.
func (n *loggedSource) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface,
	error) {
	out, err := n.ListerWatcherWithContext.WatchWithContext(ctx, o)
	if !watchListUnsupported(o, err) {
		n.observe(ctx, err)
	}
	return out, err
}

// Watch is for who has no context.
func (n *loggedSource) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return n.WatchWithContext(context.Background(), o)
}

// IsWatchListSemanticsUnSupported tells whether all of them can come as a watch, as where they come
// from has it.
func (n *loggedSource) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(n.source)
}

// endingClock is one whose waits end with a context: a reflector's pause of up to half a minute
// knows none (client-go tools/cache/reflector.go watchList, v0.37.2).
type contextClock struct {
	clock.RealClock
	ctx context.Context
}

// After sends once a time has passed, or the context has ended. Nothing of it is left with the
// context then.
func (c contextClock) After(d time.Duration) <-chan time.Time {
	out := make(chan time.Time, 1)
	ctx, cancel := context.WithTimeout(c.ctx, d)
	context.AfterFunc(ctx, func() {
		cancel()
		out <- time.Now()
	})
	return out
}
