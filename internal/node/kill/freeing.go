package kill

import "sync/atomic"

// freeing is the state shared by the threads that free a victim's memory. Every field is atomic.
type freeing struct {
	begun   atomic.Bool  // a thread has begun
	next    atomic.Int64 // index of the next pinned process
	threads atomic.Int64 // working threads
	freed   atomic.Int64 // processes with freed memory
	err     atomic.Pointer[error]
	done    atomic.Bool
}

// begin reports whether the calling thread is the first one.
func (f *freeing) begin() (first bool) { return f.begun.CompareAndSwap(false, true) }

// join counts the calling thread as working, until leave.
func (f *freeing) join() { f.threads.Add(1) }

// leave ends the work of the calling thread. It returns true once only, for the last thread.
func (f *freeing) leave() (last bool) {
	return f.threads.Add(-1) == 0 && f.done.CompareAndSwap(false, true)
}

// take returns the index of the next pinned process, and reserves it for the calling thread.
func (f *freeing) take() int { return int(f.next.Add(1)) - 1 }

// add counts a process with freed memory.
func (f *freeing) add() { f.freed.Add(1) }

// fail keeps the first error. It stores a copy, because the thread reuses its variable.
func (f *freeing) fail(err error) { f.err.CompareAndSwap(nil, &err) }

// result returns the number of freed processes and the first error.
func (f *freeing) result() (freed int, err error) {
	if e := f.err.Load(); e != nil {
		err = *e
	}
	return int(f.freed.Load()), err
}
