package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoffDoublesUpToTheLast(t *testing.T) {
	pause := time.Duration(0)
	for i, want := range []time.Duration{3, 6, 12, 20, 20} {
		if pause = Backoff(pause, 3, 20); pause != want {
			t.Errorf("pause %d = %d, want %d", i+1, pause, want)
		}
	}
}

func TestJitterIsBetweenHalfAndAll(t *testing.T) {
	const d = 10
	seen := map[time.Duration]bool{}
	for range 10_000 {
		got := Jitter(d)
		if got < d/2 || got > d {
			t.Fatalf("Jitter(%d) = %d, want %d to %d", d, got, d/2, d)
		}
		seen[got] = true
	}
	if len(seen) != d/2+1 {
		t.Errorf("Jitter(%d) returned %d different durations, want %d", d, len(seen), d/2+1)
	}
	if got := Jitter(0); got != 0 {
		t.Errorf("Jitter(0) = %d, want 0", got)
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		if passed := Sleep(ctx, time.Minute); !passed || time.Since(began) != time.Minute {
			t.Errorf("Sleep(1m) = %v after %v, want true after 1m", passed, time.Since(began))
		}
		time.AfterFunc(time.Second, cancel)
		began = time.Now()
		if passed := Sleep(ctx, time.Minute); passed || time.Since(began) != time.Second {
			t.Errorf("Sleep(1m) = %v after %v, want false after 1s, when its context ended", passed, time.Since(began))
		}
	})
}

func TestAwaitWaitsAtMostTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		for _, c := range []struct {
			takes, waited time.Duration
			ended         bool
		}{{0, 0, true}, {time.Second, time.Second, true}, {time.Hour, time.Minute, false}} {
			done := make(chan struct{})
			time.AfterFunc(c.takes, func() { close(done) })
			began := time.Now()
			if ended := Await(done, time.Minute); ended != c.ended || time.Since(began) != c.waited {
				t.Errorf("Await of %v = %v after %v, want %v after %v",
					c.takes, ended, time.Since(began), c.ended, c.waited)
			}
			began = time.Now()
			ended := AwaitFunc(func() { time.Sleep(c.takes) }, time.Minute)
			if ended != c.ended || time.Since(began) != c.waited {
				t.Errorf("AwaitFunc of %v = %v after %v, want %v after %v",
					c.takes, ended, time.Since(began), c.ended, c.waited)
			}
		}
		if AwaitFunc(func() { <-hold }, 0) {
			t.Error("AwaitFunc with limit 0 = true, want false")
		}
		close(hold)
		time.Sleep(time.Hour) // the remaining goroutines end
	})
}
