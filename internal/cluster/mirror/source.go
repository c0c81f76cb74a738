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
	listTimeout  = 60 * time.Second
	watchTimeout = 30 * time.Second
)

// Pauses after what failed double from the first to the last, with jitter.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 4 * time.Second
)

// source is one watch. It may be asked by any goroutine.
type source struct {
	name string

	mu        sync.Mutex
	synced    bool
	lastEvent time.Time // when it said something last
	openSince time.Time // since when the watch stands; zero: it does not
	probedAt  time.Time // when the API answered to something else meanwhile
}

// run lists and watches until its context ends.
func (s *source) run(
	ctx context.Context, from cache.ListerWatcherWithContext, kind runtime.Object,
	into cache.TransformingStore, log *slog.Logger,
) {
	kubefeed.Run(ctx, kubefeed.Options{
		From: s.tracked(from), Kind: kind, Into: into,
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
func (s *source) tracked(from cache.ListerWatcherWithContext) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			return from.ListWithContext(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			ctx, cancel := context.WithCancel(ctx)
			limit := time.AfterFunc(watchTimeout, cancel)
			w, err := from.WatchWithContext(ctx, o)
			limit.Stop()
			if err != nil {
				cancel()
				return nil, err
			}
			s.setOpen(time.Now())
			return &trackedWatch{Interface: w, onStop: sync.OnceFunc(func() {
				s.setOpen(time.Time{})
				cancel()
			})}, nil
		},
	}
}

// standing is a watch that notes its end.
type trackedWatch struct {
	watch.Interface
	onStop func()
}

// Stop ends it.
func (w *trackedWatch) Stop() {
	w.onStop()
	w.Interface.Stop()
}

func (s *source) setOpen(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openSince = since
}

// hear notes that the watch said something.
func (s *source) recordEvent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastEvent = time.Now()
}

// replaced notes that all is known.
func (s *source) setSynced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastEvent, s.synced = time.Now(), true
}

// prove notes that the API answered to a request that began at a time.
func (s *source) recordProbe(began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probedAt = began
}

func (s *source) isSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// current is since when something may have changed without being seen: since it said something
// last, or, while its watch stands, since the API answered last. Zero: nothing is known yet.
func (s *source) currentAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.synced:
		return time.Time{}
	case !s.openSince.IsZero() && s.probedAt.After(s.openSince) && s.probedAt.After(s.lastEvent):
		return s.probedAt
	}
	return s.lastEvent
}
