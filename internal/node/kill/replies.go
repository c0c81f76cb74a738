package kill

import (
	"sync"
	"time"
)

// replies is where the Killer's threads answer to Kill and Pin. Any thread sends; Pin receives
// before anyone else has the victim, Kill with mu held.
type replies struct {
	mu      sync.Mutex  // one Kill at a time
	timer   *time.Timer // mu guards it
	written chan result // one slot
	singled chan result // likewise
	listed  chan result // likewise
}

func (r *replies) init() {
	r.timer = time.NewTimer(time.Hour)
	r.timer.Stop()
	r.written, r.singled, r.listed = make(chan result, 1), make(chan result, 1), make(chan result, 1)
}

// drain drops what came of an earlier Kill. r.mu is held.
func (r *replies) drain() {
	drain(r.written)
	drain(r.singled)
}

// await waits for what a thread was asked to do, no longer than limit. done: it is, with that
// error. r.mu is held, or the victim is new.
func (r *replies) await(asked bool, answer <-chan result, limit time.Duration) (err error,
	done bool) {
	if !asked {
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

// result is what became of it.
type result struct{ err error }

// tell tells who may wait for it; who does not gets it the next time.
func tell(to chan<- result, err error) {
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
