package endpoints

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"jettison/api"
	"jettison/internal/base/printable"
	"jettison/internal/node/records"
)

// Records provides the eviction records (*records.Queue).
type Records interface {
	Recent() (recent []*api.Record, ok bool) // ok false: the agent is starting
	Read(after string, each func(*api.RecordsLine) error) (records.Position, error)
	Next(from records.Position) (changed []*api.Record, to records.Position, ok bool)
}

// records serves GET /v1/records[?after=ID][&follow=true]: without parameters the last records as
// one value, otherwise JSON lines.
func (e *Endpoints) records(w http.ResponseWriter, r *http.Request) {
	values, ok := parameters(w, r, "after", "follow")
	if !ok {
		return
	}
	after := values.Get("after")
	if after != "" && !records.ValidID(after) {
		fail(w, http.StatusBadRequest,
			fmt.Sprintf("after=%.80q: want the id of a record, or its beginning", after))
		return
	}
	follow, ok := flag(w, values, "follow")
	if !ok {
		return
	}
	recent, ok := e.o.Records.Recent()
	switch {
	case !ok:
		fail(w, http.StatusServiceUnavailable,
			"no records yet, the agent is starting: try again")
	case len(values) == 0:
		text, err := json.Marshal(&api.RecordsAnswer{Records: recent})
		if err != nil {
			fail(w, http.StatusInternalServerError, "encode as JSON: "+err.Error())
			return
		}
		sendJSON(w, text)
	default:
		w.Header().Set("Content-Type", "application/jsonl")
		if r.Method != http.MethodHead {
			e.sendRecords(w, r, after, follow)
		}
	}
}

// sendRecords sends the kept records, and then each change. The connection of a reader that is too
// slow is closed, so that the reader notices the loss.
func (e *Endpoints) sendRecords(w http.ResponseWriter, r *http.Request, after string, follow bool) {
	control, out := http.NewResponseController(w), printable.Writer(w)
	write := func(l *api.RecordsLine) error {
		_ = control.SetWriteDeadline(time.Now().Add(e.patient)) // if not supported, the server's deadline applies
		text, err := json.Marshal(l)
		if err == nil {
			_, err = out.Write(append(text, '\n'))
		}
		return err
	}
	flush := func() {
		if err := control.Flush(); err != nil {
			e.abort(err)
		}
	}
	at, err := e.o.Records.Read(after, write)
	if err == nil {
		err = write(&api.RecordsLine{Synced: true})
	}
	if err != nil {
		e.abort(err)
	}
	for follow {
		flush()
		select {
		case <-at.More:
		case <-r.Context().Done():
			return
		}
		changed, to, ok := e.o.Records.Next(at)
		if !ok {
			panic(http.ErrAbortHandler) // the reader would miss records without noticing
		}
		at = to
		for _, record := range changed {
			if err := write(&api.RecordsLine{Record: record}); err != nil {
				e.abort(err)
			}
		}
	}
}

// abort ends the request of a reader that did not read in time, or closed the connection.
func (e *Endpoints) abort(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		e.dropped.Add(1)
	}
	panic(http.ErrAbortHandler)
}
