package mirror

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"jettison/internal/kube/kubefeed"
)

// Bounds of requests: a list's, and of a watch until it begins to answer.
const (
	listLimit  = 60 * time.Second
	beginLimit = 30 * time.Second
)

// Pauses after what failed double from the first to the last, with jitter.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 4 * time.Second
)

// source is one watch. It may be asked by any goroutine.
type source struct {
	name string

	mu     sync.Mutex
	synced bool
	heard  time.Time // when it said something last
	open   time.Time // since when the watch stands; zero: it does not
	proven time.Time // when the API answered to something else meanwhile
}

// run lists and watches until its context ends.
func (s *source) run(
	ctx context.Context, from cache.ListerWatcherWithContext, kind runtime.Object,
	into cache.TransformingStore, log *slog.Logger,
) {
	kubefeed.Run(ctx, kubefeed.Options{
		From: s.noted(from), Kind: kind, Into: into,
		Reflector: cache.ReflectorOptions{
			Name: s.name, Backoff: &wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.5, Steps: 10,
				Cap: lastPause},
		},
		First: firstPause, Last: lastPause, Steady: time.Minute,
		Ended: func(ctx context.Context, err error, pause time.Duration) time.Duration {
			if err != nil && ctx.Err() == nil && !apierrors.IsResourceExpired(err) &&
				!apierrors.IsGone(err) {
				log.Warn("a watch broke off and begins anew: what is known stays", "source", s.name,
					"error", err)
			}
			return pause
		},
	})
}

// noted is a way to list and watch that notes when a watch stands, and lets no request hang.
func (s *source) noted(from cache.ListerWatcherWithContext) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listLimit)
			defer cancel()
			return from.ListWithContext(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			ctx, cancel := context.WithCancel(ctx)
			limit := time.AfterFunc(beginLimit, cancel)
			w, err := from.WatchWithContext(ctx, o)
			limit.Stop()
			if err != nil {
				cancel()
				return nil, err
			}
			s.stands(time.Now())
			return &standing{Interface: w, end: sync.OnceFunc(func() {
				s.stands(time.Time{})
				cancel()
			})}, nil
		},
	}
}

// standing is a watch that notes its end.
type standing struct {
	watch.Interface
	end func()
}

// Stop ends it.
func (w *standing) Stop() {
	w.end()
	w.Interface.Stop()
}

func (s *source) stands(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = since
}

// hear notes that the watch said something.
func (s *source) hear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
}

// replaced notes that all is known.
func (s *source) replaced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard, s.synced = time.Now(), true
}

// prove notes that the API answered to a request that began at a time.
func (s *source) prove(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proven = began
}

func (s *source) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// current is since when something may have changed without being seen: since it said something
// last, or, while its watch stands, since the API answered last. Zero: nothing is known yet.
func (s *source) current() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.synced:
		return time.Time{}
	case !s.open.IsZero() && s.proven.After(s.open) && s.proven.After(s.heard):
		return s.proven
	}
	return s.heard
}
