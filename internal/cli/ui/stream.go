package ui

import (
	"net/http"
	"time"

	"jettison/internal/base/retry"
)

const (
	maxStreams = 16
	// keepAlive is the longest silence of a stream, so that the server notices a disconnected
	// browser.
	keepAlive = 15 * time.Second
	// minInterval is the shortest time between two writes, so that a burst of events is one write.
	minInterval = 50 * time.Millisecond
)

// cursor is the position of a browser: the data that it has received.
type cursor struct {
	version uint64 // of the newest piece
	epoch   uint64
	sample  uint64 // the number of the next one
	started bool
}

// frames returns the data that a browser has not received yet, as server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html). change is closed at the next
// change. A slow browser gets the newest content of each part and misses earlier ones.
func (b *board) frames(c *cursor) (out []byte, change <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.encodeEvents()
	for _, part := range []string{partAgent, partState, partEvictions, partEvents, partOutlook} {
		if p := b.parts[part]; p.version > c.version {
			out = frame(out, part, p.text)
		}
	}
	c.version = b.version
	h := &b.history
	switch {
	case !c.started || c.epoch != h.epoch || c.sample < h.dropped:
		out = frame(out, "history", h.samplesFrom(0))
	case c.sample < h.next():
		out = frame(out, "samples", h.samplesFrom(c.sample))
	}
	c.started, c.epoch, c.sample = true, h.epoch, h.next()
	return out, b.change
}

// frame appends one event. data is JSON on one line.
func frame(to []byte, event string, data []byte) []byte {
	return append(append(append(append(append(to, "event: "...), event...), "\ndata: "...), data...),
		"\n\n"...)
}

// stream serves GET /stream: all data, then changes, until the browser disconnects.
func (h *handler) stream(w http.ResponseWriter, r *http.Request) {
	if !h.validKey(r.URL.Query()["key"]) {
		h.fail(w, http.StatusForbidden, "wrong key: open the address that jettison ui printed")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	if h.streams.Add(1) > maxStreams {
		h.streams.Add(-1)
		w.Header().Del("Content-Type")
		h.fail(w, http.StatusServiceUnavailable, "too many open pages: close one")
		return
	}
	defer h.streams.Add(-1)
	defer h.board.connect(time.Now(), r.URL.Query().Get("hidden") == "1")()
	h.send(w, r)
}

// send writes to a browser until it disconnects or a write times out.
func (h *handler) send(w http.ResponseWriter, r *http.Request) {
	control, c := http.NewResponseController(w), &cursor{}
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	text, change := h.board.frames(c)
	text = append([]byte("retry: 1000\n\n"), text...)
	for {
		_ = control.SetWriteDeadline(time.Now().Add(h.writeTimeout))
		if _, err := w.Write(text); err != nil {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
		if !retry.Sleep(r.Context(), minInterval) {
			return
		}
		select {
		case <-change:
			text, change = h.board.frames(c)
		case <-tick.C:
			text = []byte(": keep-alive\n\n")
		case <-r.Context().Done():
			return
		}
	}
}
