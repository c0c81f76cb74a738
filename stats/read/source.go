package read

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"jettison/stats"
)

// source asks one thing again and again on a goroutine of its own and keeps the last good answer.
// Where the question blocks for ever (statfs of a dead network file system, a runtime that hangs)
// no other source waits: the answer grows old, and beyond its limit counts as absent.
type source[T any] struct {
	name  string
	every time.Duration                    // between two questions
	limit time.Duration                    // age at which an answer counts as absent
	ask   func(context.Context) (T, error) // may block

	mu    sync.Mutex
	value T
	at    time.Time     // of value; zero: none yet
	err   error         // of the last question
	fails uint64        // questions that failed
	asked time.Time     // start of the question under way; zero: none is
	first chan struct{} // closed after the first question
	once  sync.Once
	wake  chan struct{} // one slot: ask now
}

func newSource[T any](name string, every, limit time.Duration,
	ask func(context.Context) (T, error)) *source[T] {
	return &source[T]{name: name, every: every, limit: limit, ask: ask, first: make(chan struct{}),
		wake: make(chan struct{}, 1)}
}

// run asks until ctx ends.
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
		s.askOnce(ctx)
		timer.Reset(s.every)
	}
}

// soon has the question asked again at once.
func (s *source[T]) soon() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// askOnce asks once.
func (s *source[T]) askOnce(ctx context.Context) {
	asked := time.Now()
	s.mu.Lock()
	s.asked = asked
	s.mu.Unlock()
	value, err := s.ask(ctx)
	s.mu.Lock()
	s.asked, s.err = time.Time{}, err
	if err == nil {
		s.value, s.at = value, asked // what took long to come may be as old as the question
	} else if ctx.Err() == nil {
		s.fails++
	}
	s.mu.Unlock()
	s.once.Do(func() { close(s.first) })
}

// get is the last good answer, unless it is older than its limit, and how the source stands.
func (s *source[T]) get(now time.Time) (value stats.Opt[T], status stats.SourceStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status = stats.SourceStatus{Name: s.name, Time: s.at, Err: s.err, Failures: s.fails}
	if waits := now.Sub(s.asked); !s.asked.IsZero() && (waits > patience || s.at.IsZero()) {
		status.Err = fmt.Errorf("no answer for %v", waits.Round(100*time.Millisecond))
	}
	switch age := now.Sub(s.at); {
	case s.at.IsZero():
		if status.Err == nil {
			status.Err = errors.New("not asked yet")
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

// patience is how long a question may take before it is called out as hanging.
const patience = 2 * time.Second
