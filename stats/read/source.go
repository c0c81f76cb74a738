package read

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"jettison/stats"
)

// source repeats one query on its own goroutine and keeps the last good answer. If the query blocks
// forever (statfs of a dead network file system, a runtime that hangs), no other source waits. The
// answer becomes stale and, beyond limit, counts as absent.
type source[T any] struct {
	name  string
	every time.Duration // between two queries
	// Queries are due at multiples of every after it. So sources that were created together query
	// together, and the process wakes once for all of them.
	created time.Time
	limit   time.Duration                    // age at which an answer counts as absent
	query   func(context.Context) (T, error) // may block

	mu         sync.Mutex
	value      T
	at         time.Time     // time of value; zero: no value yet
	err        error         // of the last query
	failures   uint64        // failed queries
	queryStart time.Time     // start of the query in flight; zero: no query
	answered   chan struct{} // closed after the first query
	once       sync.Once
	wake       chan struct{} // one slot: query now
}

func newSource[T any](name string, every, limit time.Duration,
	ask func(context.Context) (T, error)) *source[T] {
	return &source[T]{name: name, every: every, created: time.Now(), limit: limit, query: ask,
		answered: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// run repeats the query until ctx ends.
func (s *source[T]) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
		asked := time.Now()
		s.queryOnce(ctx)
		timer.Reset(s.rest(time.Since(asked)))
	}
}

// rest returns the time until the next query. After a slow query it is half an interval at least:
// the runtime or the disk may be overloaded.
func (s *source[T]) rest(took time.Duration) time.Duration {
	left := s.every - time.Since(s.created)%s.every
	if left < min(took, s.every/2) {
		left += s.every
	}
	return left
}

// refresh triggers a query immediately.
func (s *source[T]) refresh() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// queryOnce runs the query once.
func (s *source[T]) queryOnce(ctx context.Context) {
	asked := time.Now()
	s.mu.Lock()
	s.queryStart = asked
	s.mu.Unlock()
	value, err := s.query(ctx)
	s.mu.Lock()
	s.queryStart, s.err = time.Time{}, err
	if err == nil {
		s.value, s.at = value, asked // a late answer may be as old as the query
	} else if ctx.Err() == nil {
		s.failures++
	}
	s.mu.Unlock()
	s.once.Do(func() { close(s.answered) })
}

// get returns the last good answer, absent if it is older than limit, and the state of the source.
func (s *source[T]) get(now time.Time) (value stats.Opt[T], status stats.SourceStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status = stats.SourceStatus{Name: s.name, Time: s.at, Err: s.err, Failures: s.failures}
	if waits := now.Sub(s.queryStart); !s.queryStart.IsZero() && (waits > hangAfter || s.at.IsZero()) {
		status.Err = fmt.Errorf("no answer for %v", waits.Round(100*time.Millisecond))
	}
	switch age := now.Sub(s.at); {
	case s.at.IsZero():
		if status.Err == nil {
			status.Err = errors.New("not queried yet")
		}
	case age > s.limit:
		if status.Err == nil {
			status.Err = fmt.Errorf("the last answer is %v old", age.Round(time.Second))
		}
	default:
		value = stats.Some(s.value)
	}
	return value, status
}

// lastError returns the error of the last query.
func (s *source[T]) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// hangAfter is the duration of a query after which the source is reported as hanging.
const hangAfter = 2 * time.Second
