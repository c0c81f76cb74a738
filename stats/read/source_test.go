package read

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An answer grows old while its source fails or hangs, is absent beyond its limit, and returns
// with the source; other sources are not affected.
func TestHangingSourceGrowsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var hang atomic.Pointer[chan struct{}]
		var fail atomic.Pointer[error]
		n := 0
		s := newSource("statfs /x", time.Second, 10*time.Second, func(context.Context) (int, error) {
			if h := hang.Load(); h != nil {
				<-*h
			}
			n++
			if err := fail.Load(); err != nil {
				return n, *err
			}
			return n, nil
		})
		if v, st := s.get(time.Now()); v.OK || st.Err == nil || !st.Time.IsZero() {
			t.Errorf("before the first query: %+v, %+v", v, st)
		}
		done := make(chan struct{})
		go func() { defer close(done); s.run(ctx) }()
		synctest.Wait()
		if v, st := s.get(time.Now()); !v.OK || v.V != 1 || st.Err != nil {
			t.Errorf("after the first answer: %+v, %+v", v, st)
		}
		held := make(chan struct{})
		hang.Store(&held)
		time.Sleep(5 * time.Second)
		if v, st := s.get(time.Now()); !v.OK || v.V != 1 || st.Err == nil || !strings.Contains(st.Err.Error(), "no answer for 4s") {
			t.Errorf("hanging for 4 s: %+v, %+v", v, st)
		}
		time.Sleep(6 * time.Second)
		if v, st := s.get(time.Now()); v.OK || st.Err == nil {
			t.Errorf("hanging beyond the limit: %+v, %+v", v, st)
		}
		close(held)
		synctest.Wait()
		if v, st := s.get(time.Now()); st.Err != nil || !st.Time.Before(time.Now().Add(-9*time.Second)) {
			t.Errorf("late answer, as old as its query: %+v, %+v", v, st)
		}
		time.Sleep(1500 * time.Millisecond)
		if v, st := s.get(time.Now()); !v.OK || v.V != 3 || st.Err != nil {
			t.Errorf("after the next query: %+v, %+v", v, st)
		}
		stale := errors.New("stale handle")
		fail.Store(&stale)
		time.Sleep(3 * time.Second)
		if v, st := s.get(time.Now()); !v.OK || !errors.Is(st.Err, stale) {
			t.Errorf("failing source with a recent answer, %+v, %+v", v, st)
		}
		time.Sleep(10 * time.Second)
		if v, st := s.get(time.Now()); v.OK || !errors.Is(st.Err, stale) {
			t.Errorf("failing source beyond the limit: %+v, %+v", v, st)
		}
		fail.Store(nil)
		s.refresh()
		synctest.Wait()
		if v, _ := s.get(time.Now()); !v.OK {
			t.Error("refresh did not trigger a query immediately")
		}
		cancel()
		<-done
	})
}

// Sources that were created together query at the same times, however long their queries take.
func TestSourcesQueryTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		queries := map[time.Duration]int{}
		for _, takes := range []time.Duration{0, 300 * time.Millisecond, 1100 * time.Millisecond} {
			s := newSource("statfs /x", time.Second, 10*time.Second, func(context.Context) (int, error) {
				mu.Lock()
				queries[time.Since(began)]++
				mu.Unlock()
				time.Sleep(takes)
				return 0, nil
			})
			all.Go(func() { s.run(ctx) })
		}
		time.Sleep(6500 * time.Millisecond)
		cancel()
		all.Wait()
		for at, n := range queries {
			want := 2 // the third source takes two intervals
			if at%(2*time.Second) == 0 {
				want = 3
			}
			if at%time.Second != 0 || n != want {
				t.Errorf("%d queries after %v, want %d, at whole seconds only", n, at, want)
			}
		}
		if len(queries) != 7 {
			t.Errorf("queries at %d times, want 7: %v", len(queries), queries)
		}
	})
}

// A source whose answers take nearly the whole interval rests between two queries: it may be a runtime
// that is overloaded.
func TestSlowSourceRestsBetweenQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		const every = time.Second
		var answered time.Time // belongs to the source's goroutine until it ends
		least, queries := time.Hour, 0
		s := newSource("statfs /x", every, 10*every, func(context.Context) (int, error) {
			if queries++; queries > 1 {
				least = min(least, time.Since(answered))
			}
			time.Sleep(950 * time.Millisecond)
			answered = time.Now()
			return 0, nil
		})
		done := make(chan struct{})
		go func() { s.run(ctx); close(done) }()
		time.Sleep(20 * every)
		cancel()
		<-done
		if queries < 9 || least < every/2 {
			t.Errorf("%d queries in 20s with a rest of %v at least, want one in 2s and %v", queries, least, every/2)
		}
	})
}
