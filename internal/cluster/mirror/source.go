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

// Timeouts of a list, and of the start of a watch.
const (
	listTimeout  = 60 * time.Second
	watchTimeout = 30 * time.Second
)

// The backoff after failures doubles from firstPause to lastPause, with jitter.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 4 * time.Second
)

// source is one watch. It is safe for concurrent use.
type source struct {
	name string

	mu        sync.Mutex
	synced    bool
	lastEvent time.Time // arrival of the last event
	openSince time.Time // start of the open watch; zero: not open
	probedAt  time.Time // start of the last successful probe
	newest    time.Time // the latest value of current
	// the end of the last gap
	watchedSince time.Time
}

// maxGap is the longest time without an event or a probe that is no gap. Probes are more frequent.
const maxGap = 10 * time.Second

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
		PauseAfter: func(ctx context.Context, err error, pause time.Duration) time.Duration {
			if err != nil && ctx.Err() == nil && !apierrors.IsResourceExpired(err) &&
				!apierrors.IsGone(err) {
				//log: A watch ended with an error. The data received so far stays in use while it
				//  restarts.
				//do: If it repeats, check the connection to the API server and the permissions in
				//  error.
				log.Warn("watch failed, restarting", "source", s.name,
					"error", err)
			}
			return pause
		},
	})
}

// tracked wraps a list and watch: it records when a watch is open, and adds timeouts.
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

// trackedWatch is a watch that records its end.
type trackedWatch struct {
	watch.Interface
	onStop func()
}

// Stop ends the watch.
func (w *trackedWatch) Stop() {
	w.onStop()
	w.Interface.Stop()
}

func (s *source) setOpen(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openSince = since
}

// update makes a change that may make the source current, and records the end of a gap.
func (s *source) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	at := s.current()
	if at.Sub(s.newest) > maxGap {
		s.watchedSince = time.Now()
	}
	if at.After(s.newest) {
		s.newest = at
	}
}

// watched returns the end of the last gap: now while there is one.
func (s *source) watched() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.newest) > maxGap {
		return now
	}
	return s.watchedSince
}

// recordEvent records the arrival of an event.
func (s *source) recordEvent() { s.update(func() { s.lastEvent = time.Now() }) }

// setSynced records the arrival of a complete list.
func (s *source) setSynced() { s.update(func() { s.lastEvent, s.synced = time.Now(), true }) }

// recordProbe records a successful probe that began at that time.
func (s *source) recordProbe(began time.Time) { s.update(func() { s.probedAt = began }) }

func (s *source) isSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// currentAt returns the time up to which all changes were received: that of the last event, or of
// the last probe while the watch is open. Zero: not synced.
func (s *source) currentAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current()
}

// current is currentAt. The lock must be held.
func (s *source) current() time.Time {
	switch {
	case !s.synced:
		return time.Time{}
	case !s.openSince.IsZero() && s.probedAt.After(s.openSince) && s.probedAt.After(s.lastEvent):
		return s.probedAt
	}
	return s.lastEvent
}
