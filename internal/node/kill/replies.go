package kill

import (
	"sync"
	"time"
)

// replies carries the answers of the Killer's threads to Kill and Pin. Any thread sends. Pin
// receives before the victim is shared, and Kill receives with mu held.
type replies struct {
	mu      sync.Mutex  // one Kill at a time
	timer   *time.Timer // guarded by mu
	written chan result // one slot
	singled chan result // one slot
	listed  chan result // one slot
}

func (r *replies) init() {
	r.timer = time.NewTimer(time.Hour)
	r.timer.Stop()
	r.written, r.singled, r.listed = make(chan result, 1), make(chan result, 1), make(chan result, 1)
}

// drain drops the answers to an earlier Kill. r.mu is held.
func (r *replies) drain() {
	drain(r.written)
	drain(r.singled)
}

// await waits up to limit for the answer to a queued job. It returns the job's error and true, or
// false if the job is not done in time. Without a queued job it returns errBusy. r.mu is held, or
// the victim is new.
func (r *replies) await(queued bool, answer <-chan result, limit time.Duration) (err error,
	done bool) {
	if !queued {
		return errBusy, true
	}
	r.timer.Reset(limit)
	defer r.timer.Stop()
	select {
	case got := <-answer:
		return got.err, true
	case <-r.timer.C:
		return nil, false
	}
}

// result is the result of a job.
type result struct{ err error }

// reply sends the result of a job without blocking. It stays in the channel until the next receive.
func reply(to chan<- result, err error) {
	select {
	case to <- result{err}:
	default:
	}
}

func drain(answers <-chan result) {
	select {
	case <-answers:
	default:
	}
}
