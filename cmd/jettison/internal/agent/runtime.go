package agent

import (
	"context"
	"time"

	"jettison/cri"
	"jettison/stats"
)

// How often the runtime is listed, and how soon again while it does not answer, or a pod is about to get its containers.
const (
	resync     = 10 * time.Second
	resyncSoon = time.Second
)

// update is one answer of the runtime, or its failure.
type update struct {
	pods stats.Index
	err  error
}

// watcher lists the runtime's pods again and again and hands each answer to the loop. It is the only one that waits for
// lists, so a runtime that hangs holds up nobody else.
type watcher struct {
	lister  *cri.Lister
	listed  func(stats.Index) // gets each answer before the loop does, and may take its time
	refresh chan struct{}     // one slot: "list now"
	updates chan update       // one slot: the newest answer replaces one that was not taken
	done    chan struct{}     // closed when run has returned
}

func newWatcher(c *cri.Client, listed func(stats.Index)) *watcher {
	return &watcher{lister: cri.NewLister(c), listed: listed, refresh: make(chan struct{}, 1), updates: make(chan update, 1), done: make(chan struct{})}
}

// ask has the runtime listed as soon as possible. It never blocks.
func (w *watcher) ask() {
	select {
	case w.refresh <- struct{}{}:
	default: // asked already
	}
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
		pods := stats.NewIndex(listing)
		if err == nil {
			w.listed(pods)
		}
		w.updates <- update{pods, err} // run is the only sender: the slot is free
		next := resync
		if err != nil || !pods.Settled(time.Now()) {
			next = resyncSoon
		}
		timer := time.NewTimer(next)
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
