// Package connlimit bounds how many connections a server has at the same time, so that who asks
// something is answered all the same: where all places are taken, one that comes takes that of one
// that asks nothing.
package connlimit

import (
	"io"
	"net/http"
	"sync"
	"time"

	"jettison/internal/base/retry"
)

// leaveLimit is how long a connection that was hung up on may take to give its place back: its
// goroutine has to see that, on a node that is starved perhaps.
const leaveLimit = time.Second

// stallLimit is how long a client may take nothing of an answer, or send nothing of a body, before
// its place may be taken: one on this node, or near it, needs milliseconds.
const stallLimit = 250 * time.Millisecond

// mostLeaving bounds connections that have been told their end, and are kept for a moment, so that
// the client reads that (net/http/server.go closeWriteAndWait: half a second): each is a goroutine
// and two buffers of 4 KiB.
const mostLeaving = 128

// Key is whose connections are counted together, and may take each other's places.
type Key int64

// Places are those of one server. The zero value is ready, and whoever is being answered and does
// not stall keeps its place. Take is for one goroutine, the one that accepts; all else may be
// called by any.
type Places struct {
	// Patience is how long an answer may take before its connection's place may be taken; 0: for ever.
	Patience time.Duration

	mu  sync.Mutex
	all map[*Place]struct{}
}

// Place is a connection's.
type Place struct {
	of     *Places
	key    Key
	hangUp func()
	left   chan struct{} // closed when it was given back, or is about to be

	// Of the Places' mu.
	busy   bool      // a request is being answered, whose header has come
	since  time.Time // when that began or ended
	leaves bool      // it was told its end
	// since when the client has taken nothing of its answer, or sent nothing of its body; zero: it is
	// not waited for
	waits time.Time
}

// right is how much right a connection has to its place: of two with the same right the one goes
// for which that has been so for longer.
type right int

const (
	idle    right = iota // it asks nothing
	stalled              // it does not take its answer, or does not send its body
	late                 // its answer takes longer than Patience
	stays
)

// right of a place, and since when. mu is held.
func (p *Place) right(now time.Time) (right, time.Time) {
	switch {
	case !p.busy:
		return idle, p.since
	case !p.waits.IsZero() && now.Sub(p.waits) >= stallLimit:
		return stalled, p.waits
	case p.of.Patience > 0 && now.Sub(p.since) >= p.of.Patience:
		return late, p.since
	}
	return stays, p.since
}

// Take gives a connection a place among most that a key has; nil: each of these is being answered,
// and does not stall. hangUp cuts off the connection, and has whoever serves it call Leave soon. It
// is called at most once, by a later Take.
func (p *Places) Take(key Key, most int, hangUp func()) *Place {
	n, leaving, goes := p.look(key)
	if n >= most && goes != nil {
		goes.hangUp()
		if retry.Await(goes.left, leaveLimit) {
			n--
		}
	}
	if n >= most || leaving >= mostLeaving {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[*Place]struct{}{}
	}
	place := &Place{of: p, key: key, hangUp: sync.OnceFunc(hangUp), left: make(chan struct{}),
		since: time.Now()}
	p.all[place] = struct{}{}
	return place
}

// Count is how many places of a key are taken.
func (p *Places) Count(key Key) int {
	n, _, _ := p.look(key)
	return n
}

// look counts those of a key, and those of all keys that leave; and says whose place may be taken;
// nil: nobody's.
func (p *Places) look(key Key) (n, leaving int, goes *Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, least, since := time.Now(), stays, time.Time{}
	for place := range p.all {
		switch {
		case place.leaves:
			leaving++
			continue
		case place.key != key:
			continue
		}
		n++
		if has, from := place.right(now); has < least || has == least && goes != nil &&
			from.Before(since) {
			goes, least, since = place, has, from
		}
	}
	return n, leaving, goes
}

// State is what net/http tells of the connection (http.Server.ConnState): it is active once the
// header of a request has come.
func (p *Place) State(s http.ConnState) {
	if s != http.StateActive && s != http.StateIdle {
		return
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.busy, p.since = s == http.StateActive, time.Now()
}

// Write writes some of an answer to the connection, which may have to wait for the client.
func (p *Place) Write(to io.Writer, b []byte) (int, error) {
	p.wait(time.Now())
	defer p.wait(time.Time{})
	return to.Write(b)
}

// Read reads some of the body of a request, likewise.
func (p *Place) Read(from io.Reader, b []byte) (int, error) {
	p.wait(time.Now())
	defer p.wait(time.Time{})
	return from.Read(b)
}

func (p *Place) wait(since time.Time) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.waits = since
}

// Leaves says that the connection was told its end: others may have the place from now on.
func (p *Place) Leaves() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if _, is := p.of.all[p]; is && !p.leaves {
		p.leaves = true
		close(p.left)
	}
}

// Leave gives the place back. It may be called again.
func (p *Place) Leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if _, is := p.of.all[p]; !is {
		return
	}
	delete(p.of.all, p)
	if !p.leaves {
		close(p.left)
	}
}
