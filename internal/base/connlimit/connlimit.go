// Package connlimit bounds how many connections a server has at the same time. When all places are
// in use, a new connection replaces one that is idle, stalled or too slow, so that clients with a
// request are still served.
package connlimit

import (
	"cmp"
	"io"
	"net/http"
	"sync"
	"time"

	"jettison/internal/base/retry"
)

// releaseTimeout is the time within which a closed connection must release its place: its goroutine
// has to see the close, perhaps on a starved node.
const releaseTimeout = time.Second

// stallTimeout is the time after which a client that reads nothing of its response, or sends nothing
// of its body, may lose its place. A client on this node, or near it, needs milliseconds.
const stallTimeout = 250 * time.Millisecond

// maxClosing bounds connections that have sent their end and stay open for a moment so that the
// client reads it (net/http/server.go closeWriteAndWait: half a second). Each is a goroutine and two
// buffers of 4 KiB.
const maxClosing = 128

// Key groups connections. Those with the same key are counted together and may replace each other.
type Key int64

// Places counts the connections of one server. The zero value is ready. A connection whose request
// is being answered and that does not stall keeps its place. Acquire is for one goroutine, the one
// that accepts; all other methods are safe for concurrent use.
type Places struct {
	// AnswerTimeout is the time after which an unfinished response no longer protects the place of its
	// connection; 0: it always does.
	AnswerTimeout time.Duration

	mu  sync.Mutex
	all map[*Place]struct{}
}

// Place is the place of one connection.
type Place struct {
	places    *Places
	key       Key
	size      func() int // connections of its client
	closeConn func()
	released  chan struct{} // closed when the place is released, or is about to be

	// Guarded by the mutex of places.
	busy    bool      // a request is being answered, with its header complete
	since   time.Time // when busy changed
	closing bool      // the connection has sent its end
	// since when the client has read nothing of its response, or sent nothing of its body; zero: the
	// server is not waiting for the client
	waitingSince time.Time
}

// claim orders the connections of a client, and of clients of the same size, by how well they keep
// their place. Of two with the same claim, the one that has had it for longer is replaced.
type claim int

const (
	idle    claim = iota // no request
	stalled              // reads no response, or sends no body
	late                 // its response takes longer than AnswerTimeout
	active               // keeps its place
)

// claim returns the claim of a place, and since when it has it. mu is held.
func (p *Place) claim(now time.Time) (claim, time.Time) {
	switch {
	case !p.busy:
		return idle, p.since
	case !p.waitingSince.IsZero() && now.Sub(p.waitingSince) >= stallTimeout:
		return stalled, p.waitingSince
	case p.places.AnswerTimeout > 0 && now.Sub(p.since) >= p.places.AnswerTimeout:
		return late, p.since
	}
	return active, p.since
}

// Acquire gives a connection one of limit places of a key. It returns nil if all of them are active.
// closeConn closes the connection and makes its server call Release soon. A later Acquire calls it
// at most once.
func (p *Places) Acquire(key Key, limit int, closeConn func()) *Place {
	return p.AcquireFor(func() int { return 0 }, key, limit, closeConn)
}

// AcquireFor is Acquire for a client that is known: size returns how many connections it has, with
// this one. The connection replaces none of a client with fewer, and first one of the client with
// the most. Otherwise a client that connects all the time would close the connections of others
// before they have sent their request. size must not call Places.
func (p *Places) AcquireFor(size func() int, key Key, limit int, closeConn func()) *Place {
	n, closing, replaceable := p.survey(key, size())
	if n >= limit && replaceable != nil {
		replaceable.closeConn()
		if retry.Await(replaceable.released, releaseTimeout) {
			n--
		}
	}
	if n >= limit || closing >= maxClosing {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[*Place]struct{}{}
	}
	place := &Place{places: p, key: key, size: size, closeConn: sync.OnceFunc(closeConn),
		released: make(chan struct{}), since: time.Now()}
	p.all[place] = struct{}{}
	return place
}

// Count returns the number of used places of a key.
func (p *Places) Count(key Key) int {
	n, _, _ := p.survey(key, 0)
	return n
}

// survey counts the places of a key and the closing connections of all keys. It returns the place
// of the key that a client with size connections replaces first; nil: none.
func (p *Places) survey(key Key, size int) (n, closing int, replaceable *Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, largest, weakest, since := time.Now(), 0, active, time.Time{}
	for place := range p.all {
		switch {
		case place.closing:
			closing++
			continue
		case place.key != key:
			continue
		}
		n++
		c, from := place.claim(now)
		if its := place.size(); c < active && its >= size && (replaceable == nil || cmp.Or(
			cmp.Compare(largest, its), cmp.Compare(c, weakest), from.Compare(since)) < 0) {
			replaceable, largest, weakest, since = place, its, c, from
		}
	}
	return n, closing, replaceable
}

// State records the state that net/http reports for the connection (http.Server.ConnState): a
// connection is active once the header of a request is complete.
func (p *Place) State(s http.ConnState) {
	if s != http.StateActive && s != http.StateIdle {
		return
	}
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	p.busy, p.since = s == http.StateActive, time.Now()
}

// Write writes a part of a response to the connection. It blocks while the client does not read.
func (p *Place) Write(to io.Writer, b []byte) (int, error) {
	p.setWaiting(time.Now())
	defer p.setWaiting(time.Time{})
	return to.Write(b)
}

// Read reads a part of a request body. It blocks while the client sends nothing.
func (p *Place) Read(from io.Reader, b []byte) (int, error) {
	p.setWaiting(time.Now())
	defer p.setWaiting(time.Time{})
	return from.Read(b)
}

func (p *Place) setWaiting(since time.Time) {
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	p.waitingSince = since
}

// Closing records that the connection has sent its end: another may have the place from now on.
func (p *Place) Closing() {
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	if _, ok := p.places.all[p]; ok && !p.closing {
		p.closing = true
		close(p.released)
	}
}

// Release releases the place. Further calls do nothing.
func (p *Place) Release() {
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	if _, ok := p.places.all[p]; !ok {
		return
	}
	delete(p.places.all, p)
	if !p.closing {
		close(p.released)
	}
}
