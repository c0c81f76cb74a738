package walk

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Share returns a pace function that keeps the calling thread below a share of one core, 0 to
// 1, measured by its CPU time (clock). The goroutine must be locked to its thread.
func Share(of func() float64, clock func() time.Duration) func(context.Context) error {
	const slice = 2 * time.Millisecond // of CPU time between two pauses
	last := clock()
	return func(ctx context.Context) error {
		used := clock() - last
		if used < slice {
			return ctx.Err()
		}
		of := of()
		timer := time.NewTimer(time.Duration(float64(used) * (1 - of) / of))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		last = clock()
		return nil
	}
}

// ThreadCPU returns the CPU time that the calling thread has used.
func ThreadCPU() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano())
}

// YieldDisk locks the goroutine to its thread and gives the thread idle I/O priority. The thread
// ends with the goroutine.
func YieldDisk() {
	runtime.LockOSThread()
	// include/uapi/linux/ioprio.h; process 0: this thread
	const ioprioWhoProcess, ioprioClassIdle = 1, 3 << 13
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, 0, ioprioClassIdle)
}
