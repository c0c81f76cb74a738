package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"jettison/internal/base/retry"
	"jettison/internal/kubectl/fleet"
)

// The backoff after a failed list or watch doubles from minBackoff to maxBackoff.
const minBackoff, maxBackoff = time.Second, 30 * time.Second

// idle is the longest time between two calls of each: a load becomes old without a change.
const idle = 30 * time.Second

// Follow lists the objects of each kind, watches them, and calls each with all objects: after the
// lists, after changes at most once per pause, and after idle, until ctx ends or each fails. It calls each with
// the error if nodes cannot be listed any more, and retries.
func (c *Client) Follow(ctx context.Context, s Selection, pause time.Duration,
	each func(*fleet.Objects, error) error) error {
	store := newStore(s)
	queries := c.queries(s)
	versions := make([]string, len(queries))
	var lists, watches sync.WaitGroup
	for i := range queries {
		lists.Go(func() { versions[i], _ = store.list(ctx, &queries[i]) })
	}
	lists.Wait()
	if _, err := store.objects(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer watches.Wait()
	defer cancel()
	for i := range queries {
		watches.Go(func() { store.follow(ctx, &queries[i], versions[i]) })
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-store.changed:
		case <-time.After(idle):
		}
		if err := each(store.objects()); err != nil {
			return err
		}
		retry.Sleep(ctx, pause)
	}
}

// follow watches the objects of a kind from a version of its list, and lists them again after a
// failure.
func (s *store) follow(ctx context.Context, q *query, version string) {
	for delay := time.Duration(0); ctx.Err() == nil; {
		if version != "" {
			began := time.Now()
			version = s.watch(ctx, q, version)
			if time.Since(began) > maxBackoff {
				delay = 0
			}
			if version != "" && delay == 0 { // the server ended the watch after its timeout
				delay = minBackoff
				continue
			}
		}
		delay = retry.Backoff(delay, minBackoff, maxBackoff)
		retry.Sleep(ctx, retry.Jitter(delay))
		if ctx.Err() == nil {
			version, _ = s.list(ctx, q)
		}
	}
}

// watch applies the events of one watch until it ends, and returns the version to continue from.
// Empty: list the objects again.
func (s *store) watch(ctx context.Context, q *query, version string) string {
	w, err := q.request(q.watch, metav1.ListOptions{Watch: true, ResourceVersion: version,
		AllowWatchBookmarks: true}).Watch(ctx)
	if err != nil {
		return ""
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		m, err := meta.Accessor(e.Object)
		if e.Type == watch.Error || err != nil {
			return ""
		}
		if version = m.GetResourceVersion(); e.Type != watch.Bookmark {
			s.apply(q.kind, e.Type, e.Object)
		}
	}
	return version
}

func (s *store) apply(kind fleet.Kind, what watch.EventType, o runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what == watch.Deleted {
		delete(s.kinds[kind], key(o))
	} else {
		s.kinds[kind][key(o)] = o
	}
	s.notify()
}
