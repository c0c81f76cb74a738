package retry

import "time"

// Await waits until done is closed, at most limit. It reports whether that was in time.
func Await(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// AwaitFunc waits until a function returns, at most limit, and reports whether that was in time.
// The function runs in a goroutine, which continues after the limit: a system call that hangs in a
// file system cannot be cancelled.
func AwaitFunc(wait func(), limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait()
	}()
	return Await(done, limit)
}
