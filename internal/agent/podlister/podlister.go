// Package podlister maintains the runtime's pods: it lists them on its own goroutine, and merges
// the lists with the runtime's events.
//
//	podlister.go  Lister: lists periodically, on its own goroutine
//	pods.go       Pods: the known pods of the runtime, for the loop
//	overlay.go    additions from events to the list
//	placement.go  containers that do not run in their pods' cgroups
package podlister

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"jettison/cri"
	"jettison/stats/read"
)

// Intervals between lists: normally; while the runtime does not answer or a pod waits for its
// containers; and with events, where lists only verify.
const (
	resync           = 10 * time.Second
	resyncSoon       = time.Second
	resyncWithEvents = 30 * time.Second
)

// Update is an answer of the runtime, or its error.
type Update struct {
	Began time.Time // the list contains the pods from before; zero: some may be missing
	Pods  read.Index
	Err   error
}

// Lister lists the runtime's pods periodically and sends each answer to the loop. Only it waits for
// lists, so that a runtime that hangs blocks nothing else.
type Lister struct {
	client    *cri.Lister
	listed    func(read.Index)    // receives each answer before the loop does; may block
	outside   *read.OutsideFinder // nil: no search
	refresh   chan struct{}       // one slot: "list now"
	updates   chan Update         // one slot: the newest answer replaces an unread one
	done      chan struct{}       // closed when run has returned
	hasEvents atomic.Bool         // the runtime sends events on its pods

	mu      sync.Mutex
	changed map[string]bool // IDs of containers with events since the last list began
}

// New creates a Lister. listed may be nil.
func New(c *cri.Client, listed func(read.Index)) *Lister {
	return &Lister{
		client: cri.NewLister(c), listed: listed, refresh: make(chan struct{}, 1),
		updates: make(chan Update, 1), done: make(chan struct{}),
	}
}

// SetOutside sets the search for containers outside their pods' cgroups. Call it before the first list.
func (l *Lister) SetOutside(f *read.OutsideFinder) { l.outside = f }

// Index groups a list by pod, and finds the containers outside their pods' cgroups.
func (l *Lister) Index(listing cri.Listing) read.Index {
	pods := read.NewIndex(listing)
	if l.outside != nil {
		l.outside.Find(pods)
	}
	return pods
}

// Client returns the CRI lister, for the first list, which the start waits for before run.
func (l *Lister) Client() *cri.Lister { return l.client }

// Updates returns the channel of answers.
func (l *Lister) Updates() <-chan Update { return l.updates }

// SetEvents sets whether the runtime sends events on its pods.
func (l *Lister) SetEvents(available bool) { l.hasEvents.Store(available) }

// Changed marks containers, by their IDs, as changed since they were listed.
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

// list lists the pods, with the events so far.
func (l *Lister) list(ctx context.Context) (cri.Listing, error) {
	l.mu.Lock()
	changed := l.changed
	l.changed = nil
	l.mu.Unlock()
	l.client.SetEvents(l.hasEvents.Load(), changed)
	return l.client.List(ctx)
}

// Ask requests a list as soon as possible. It never blocks.
func (l *Lister) Ask() {
	select {
	case l.refresh <- struct{}{}:
	default: // a request is pending
	}
}

// next returns the time until the next list.
func (l *Lister) next(err error, pods read.Index) time.Duration {
	switch {
	case err != nil:
		return resyncSoon
	case l.hasEvents.Load():
		return resyncWithEvents
	case !pods.Settled(time.Now()):
		return resyncSoon
	}
	return resync
}

// Start lists until ctx ends. The returned function waits for the end.
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
		pods := l.Index(listing)
		if err == nil && l.listed != nil {
			l.listed(pods)
		}
		began := listing.Time
		if listing.Incomplete {
			began = time.Time{}
		}
		l.updates <- Update{began, pods, err} // run is the only sender: the slot is free
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
