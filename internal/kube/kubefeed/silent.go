package kubefeed

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
)

// A watch is silent if it ends within silentWatch and the store has received nothing from it. A
// healthy watch receives a bookmark each minute. A proxy may reset each watch after the headers of
// its response: the reflector would watch again forever and never list.
const (
	silentWatch = 10 * time.Second
	maxSilent   = 2 // in a row; then the objects are listed
)

// errSilentWatches ends a streaming list, or the run of a reflector, so that it sends a list request.
var errSilentWatches = errors.New("watches end without an event")

// silenceLimit is a lister and watcher that permits no watch after maxSilent silent ones. A list
// permits one more.
type silenceLimit struct {
	cache.ListerWatcherWithContext
	source   cache.ListerWatcher
	received atomic.Int64 // calls of the store

	mu     sync.Mutex // a reflector may call from two goroutines
	began  time.Time  // start of the last watch; zero: it is counted
	before int64      // received at that time
	silent int        // silent watches in a row
}

func newSilenceLimit(from cache.ListerWatcher) *silenceLimit {
	return &silenceLimit{ListerWatcherWithContext: cache.ToListerWatcherWithContext(from), source: from}
}

// countWatch counts the last watch, which has ended. The caller holds the lock.
func (s *silenceLimit) countWatch() {
	if s.began.IsZero() {
		return
	}
	if s.silent++; s.received.Load() != s.before || time.Since(s.began) >= silentWatch {
		s.silent = 0
	}
	s.began = time.Time{}
}

// ListWithContext lists the objects.
func (s *silenceLimit) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object,
	error) {
	out, err := s.ListerWatcherWithContext.ListWithContext(ctx, o)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.countWatch(); err == nil {
		s.silent = min(s.silent, maxSilent-1)
	}
	return out, err
}

// WatchWithContext watches the objects, unless the last watches were silent.
func (s *silenceLimit) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface,
	error) {
	s.mu.Lock()
	s.countWatch()
	silent := s.silent >= maxSilent
	s.mu.Unlock()
	if silent {
		return nil, errSilentWatches
	}
	w, err := s.ListerWatcherWithContext.WatchWithContext(ctx, o)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.began, s.before = time.Now(), s.received.Load()
	}
	return w, err
}

// List is ListWithContext for callers without a context.
func (s *silenceLimit) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

// Watch is WatchWithContext for callers without a context.
func (s *silenceLimit) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// IsWatchListSemanticsUnSupported reports whether the source does not support streaming lists.
func (s *silenceLimit) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(s.source)
}

// countedStore counts the calls of a store.
type countedStore struct {
	cache.TransformingStore
	calls *atomic.Int64
}

// Add passes on a new object.
func (s countedStore) Add(o any) error { s.calls.Add(1); return s.TransformingStore.Add(o) }

// Update passes on a changed object.
func (s countedStore) Update(o any) error { s.calls.Add(1); return s.TransformingStore.Update(o) }

// Delete passes on a deleted object.
func (s countedStore) Delete(o any) error { s.calls.Add(1); return s.TransformingStore.Delete(o) }

// Replace passes on all objects.
func (s countedStore) Replace(all []any, version string) error {
	s.calls.Add(1)
	return s.TransformingStore.Replace(all, version)
}

// Bookmark passes on a bookmark.
func (s countedStore) Bookmark(version string) error {
	s.calls.Add(1)
	if to, ok := s.TransformingStore.(cache.ReflectorBookmarkStore); ok {
		return to.Bookmark(version)
	}
	return nil
}
