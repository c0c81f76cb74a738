package kill

import "sync/atomic"

// freeing is what the threads that free a victim's memory share. Every field is atomic.
type freeing struct {
	begun   atomic.Bool  // a thread has begun
	next    atomic.Int64 // the next of the pinned processes
	threads atomic.Int64 // at it
	freed   atomic.Int64 // processes whose memory was freed
	err     atomic.Pointer[error]
	done    atomic.Bool
}

// begin reports whether the calling thread is the first.
func (f *freeing) begin() (first bool) { return f.begun.CompareAndSwap(false, true) }

// join counts the calling thread in, until leave.
func (f *freeing) join() { f.threads.Add(1) }

// leave counts the calling thread out, and reports, once only, that no thread is left.
func (f *freeing) leave() (last bool) {
	return f.threads.Add(-1) == 0 && f.done.CompareAndSwap(false, true)
}

// take returns the index of the next pinned process, which is the calling thread's alone.
func (f *freeing) take() int { return int(f.next.Add(1)) - 1 }

// add counts a process whose memory was freed.
func (f *freeing) add() { f.freed.Add(1) }

// fail keeps the first error. It keeps a copy: the thread has another victim next.
func (f *freeing) fail(err error) { f.err.CompareAndSwap(nil, &err) }

// result returns how many processes were freed, and the first error.
func (f *freeing) result() (freed int, err error) {
	if e := f.err.Load(); e != nil {
		err = *e
	}
	return int(f.freed.Load()), err
}
