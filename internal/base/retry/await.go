package retry

import "time"

// Await waits until done is closed, limit at most. It reports whether that was in time.
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

// AwaitFunc waits until a function returns, limit at most, and reports whether that was in time.
// The function runs in a goroutine, which is left behind after the limit: what the kernel holds, in
// a file system that hangs, cannot be cancelled.
func AwaitFunc(wait func(), limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait()
	}()
	return Await(done, limit)
}
