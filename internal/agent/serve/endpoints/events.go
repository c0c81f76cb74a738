package endpoints

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"jettison/internal/agent/serve/eventlog"
	"jettison/internal/base/printable"
)

// events serves GET /v1/events[?since=SEQ][&follow=true] as JSON lines. The connection of a reader
// that is too slow is closed, so that the reader notices the loss.
func (e *Endpoints) events(w http.ResponseWriter, r *http.Request) {
	values, ok := parameters(w, r, "since", "follow")
	if !ok {
		return
	}
	var since uint64
	if text := values.Get("since"); text != "" {
		var err error
		if since, err = strconv.ParseUint(text, 10, 64); err != nil {
			fail(w, http.StatusBadRequest, fmt.Sprintf("since=%.30q: want the seq of an event", text))
			return
		}
	}
	follow, ok := flag(w, values, "follow")
	if !ok {
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	if r.Method == http.MethodHead {
		return
	}
	e.send(w, r, since, follow)
}

func (e *Endpoints) send(w http.ResponseWriter, r *http.Request, since uint64, follow bool) {
	control, out := http.NewResponseController(w), printable.Writer(w)
	var line []byte
	for first := true; ; first = false {
		b := e.o.Events.After(since)
		if b.Lost && !first {
			e.dropped.Add(b.First - since - 1)
			panic(http.ErrAbortHandler) // the reader would miss events without noticing
		}
		_ = control.SetWriteDeadline(time.Now().Add(e.patient)) // if not supported, the server's deadline applies
		if b.Lost {
			if _, err := out.Write(eventlog.Lost(time.Now(), since, b.First)); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
		for i := range b.Lines {
			since = b.First + uint64(i)
			line = eventlog.Append(line[:0], since, b.Lines[i])
			if _, err := out.Write(line); err != nil {
				e.abortEvents(err, len(b.Lines)-i)
			}
		}
		if since == 0 || b.Lost {
			since = b.First + uint64(len(b.Lines)) - 1
		}
		if !follow {
			return
		}
		if err := control.Flush(); err != nil {
			e.abortEvents(err, len(b.Lines))
		}
		select {
		case <-b.More:
		case <-r.Context().Done():
			return
		}
	}
}

// abortEvents ends the request of a reader that did not read so many events in time, or closed the
// connection.
func (e *Endpoints) abortEvents(err error, events int) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e.dropped.Add(uint64(events))
	}
	panic(http.ErrAbortHandler)
}
