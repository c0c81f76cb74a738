// Package podlister knows the runtime's pods: it lists them beside the loop, and joins the lists
// with what the runtime tells of its own.
//
//	podlister.go   Lister: lists again and again, beside the loop
//	pods.go     Pods: what is known of the runtime's pods, for the loop
//	overlay.go  what its events told, over what it listed
package podlister

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"jettison/cri"
	"jettison/stats/read"
)

// How often the runtime is listed, and how soon again while it does not answer, or a pod is about
// to get its containers. Where it tells of its pods as they come and go, lists only make sure.
const (
	resync     = 10 * time.Second
	resyncSoon = time.Second
	resyncTold = 30 * time.Second
)

// Update is one answer of the runtime, or its failure.
type Update struct {
	Pods read.Index
	Err  error
}

// Lister lists the runtime's pods again and again and hands each answer to the loop. It alone waits
// for lists, so that a runtime that hangs holds up nothing else.
type Lister struct {
	client  *cri.Lister
	listed  func(read.Index) // gets each answer before the loop does, and may take its time
	refresh chan struct{}    // one slot: "list now"
	updates chan Update      // one slot: the newest answer replaces one that was not taken
	done    chan struct{}    // closed when Run has returned
	told    atomic.Bool      // the runtime tells of its pods as they come and go

	mu      sync.Mutex
	changed map[string]bool // IDs of containers that it has told of since the last list was begun
}

// New makes a Lister. listed may be nil.
func New(c *cri.Client, listed func(read.Index)) *Lister {
	return &Lister{
		client: cri.NewLister(c), listed: listed, refresh: make(chan struct{}, 1),
		updates: make(chan Update, 1), done: make(chan struct{}),
	}
}

// Client is what lists, for the first answer that is waited for at the start, before Run.
func (l *Lister) Client() *cri.Lister { return l.client }

// Updates are the answers.
func (l *Lister) Updates() <-chan Update { return l.updates }

// Told says whether the runtime tells of its pods as they come and go.
func (l *Lister) Told(told bool) { l.told.Store(told) }

// Changed says which containers, by their IDs, are not what they were when they were listed.
func (l *Lister) Changed(ids []string) {
	if len(ids) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(map[string]bool, len(ids))
	}
	for _, id := range ids {
		l.changed[id] = true
	}
}

// list lists, with what was told until now.
func (l *Lister) list(ctx context.Context) (cri.Listing, error) {
	l.mu.Lock()
	changed := l.changed
	l.changed = nil
	l.mu.Unlock()
	l.client.Told(l.told.Load(), changed)
	return l.client.List(ctx)
}

// Ask has the runtime listed as soon as possible. It never blocks.
func (l *Lister) Ask() {
	select {
	case l.refresh <- struct{}{}:
	default: // asked already
	}
}

// next is how long after an answer the runtime is listed again.
func (l *Lister) next(err error, pods read.Index) time.Duration {
	switch {
	case err != nil:
		return resyncSoon
	case l.told.Load():
		return resyncTold
	case !pods.Settled(time.Now()):
		return resyncSoon
	}
	return resync
}

// Start lists until ctx ends. The returned function waits for that.
func (l *Lister) Start(ctx context.Context) (wait func()) {
	go l.run(ctx)
	return func() { <-l.done }
}

func (l *Lister) run(ctx context.Context) {
	defer close(l.done)
	for {
		listing, err := l.list(ctx)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-l.updates:
		default:
		}
		pods := read.NewIndex(listing)
		if err == nil && l.listed != nil {
			l.listed(pods)
		}
		l.updates <- Update{pods, err} // run is the only sender: the slot is free
		timer := time.NewTimer(l.next(err, pods))
		select {
		case <-timer.C:
		case <-l.refresh:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}
