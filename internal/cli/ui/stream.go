package ui

import (
	"net/http"
	"time"

	"jettison/internal/base/retry"
)

const (
	maxStreams = 16
	// quiet is how long a stream may say nothing: so that what lies between notices a browser that is
	// gone.
	quiet = 15 * time.Second
	// apart is the shortest time between two sendings, so that a burst of events is one.
	apart = 50 * time.Millisecond
)

// cursor is how far a browser has been sent what is known.
type cursor struct {
	version uint64 // of the newest piece
	epoch   uint64
	sample  uint64 // the number of the next one
	begun   bool
}

// frames are what a browser has not been sent yet, as server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html); more is closed when there is
// something newer. A browser that is slow gets what is newest, and misses what was between.
func (b *board) frames(c *cursor) (out []byte, more <-chan struct{}) {
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
	case !c.begun || c.epoch != h.epoch || c.sample < h.dropped:
		out = frame(out, "history", h.after(0))
	case c.sample < h.next():
		out = frame(out, "samples", h.after(c.sample))
	}
	c.begun, c.epoch, c.sample = true, h.epoch, h.next()
	return out, b.more
}

// frame adds one event. JSON has no line ends.
func frame(to []byte, event string, data []byte) []byte {
	return append(append(append(append(append(to, "event: "...), event...), "\ndata: "...), data...),
		"\n\n"...)
}

// stream is GET /stream: what is known, and then what changes, until the browser goes.
func (h *handler) stream(w http.ResponseWriter, r *http.Request) {
	if !h.knows(r.URL.Query()["key"]) {
		h.fail(w, http.StatusForbidden, "wrong key: open the address that jettison ui has printed")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	if h.streams.Add(1) > maxStreams {
		h.streams.Add(-1)
		w.Header().Del("Content-Type")
		h.fail(w, http.StatusServiceUnavailable, "too many browsers look at once: close one")
		return
	}
	defer h.streams.Add(-1)
	h.board.viewed(1)
	defer h.board.viewed(-1)
	h.send(w, r)
}

// send writes to a browser until it goes, or is too slow.
func (h *handler) send(w http.ResponseWriter, r *http.Request) {
	control, c := http.NewResponseController(w), &cursor{}
	beat := time.NewTicker(quiet)
	defer beat.Stop()
	text, more := h.board.frames(c)
	text = append([]byte("retry: 1000\n\n"), text...)
	for {
		_ = control.SetWriteDeadline(time.Now().Add(h.patience))
		if _, err := w.Write(text); err != nil {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
		if !retry.Sleep(r.Context(), apart) {
			return
		}
		select {
		case <-more:
			text, more = h.board.frames(c)
		case <-beat.C:
			text = []byte(": still here\n\n")
		case <-r.Context().Done():
			return
		}
	}
}
