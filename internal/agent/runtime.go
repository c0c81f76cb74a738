package agent

import (
	"context"
	"sync/atomic"
	"time"

	"jettison/cri"
	"jettison/stats/read"
)

// How often the runtime is listed, and how soon again while it does not answer, or a pod is about to get its containers. Where it tells
// of its pods as they come and go, lists only make sure.
const (
	resync     = 10 * time.Second
	resyncSoon = time.Second
	resyncTold = 30 * time.Second
)

// update is one answer of the runtime, or its failure.
type update struct {
	pods read.Index
	err  error
}

// watcher lists the runtime's pods again and again and hands each answer to the loop. It is the only one that waits for
// lists, so a runtime that hangs holds up nobody else.
type watcher struct {
	lister  *cri.Lister
	listed  func(read.Index) // gets each answer before the loop does, and may take its time
	refresh chan struct{}    // one slot: "list now"
	updates chan update      // one slot: the newest answer replaces one that was not taken
	done    chan struct{}    // closed when run has returned
	told    atomic.Bool      // the runtime tells of its pods as they come and go
}

func newWatcher(c *cri.Client, listed func(read.Index)) *watcher {
	return &watcher{lister: cri.NewLister(c), listed: listed, refresh: make(chan struct{}, 1), updates: make(chan update, 1), done: make(chan struct{})}
}

// ask has the runtime listed as soon as possible. It never blocks.
func (w *watcher) ask() {
	select {
	case w.refresh <- struct{}{}:
	default: // asked already
	}
}

// next is how long after an answer the runtime is listed again.
func (w *watcher) next(err error, pods read.Index) time.Duration {
	switch {
	case err != nil:
		return resyncSoon
	case w.told.Load():
		return resyncTold
	case !pods.Settled(time.Now()):
		return resyncSoon
	}
	return resync
}

// run lists until ctx ends.
func (w *watcher) run(ctx context.Context) {
	defer close(w.done)
	for {
		listing, err := w.lister.List(ctx)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-w.updates:
		default:
		}
		pods := read.NewIndex(listing)
		if err == nil {
			w.listed(pods)
		}
		w.updates <- update{pods, err} // run is the only sender: the slot is free
		timer := time.NewTimer(w.next(err, pods))
		select {
		case <-timer.C:
		case <-w.refresh:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}
