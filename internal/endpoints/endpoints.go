// Package endpoints answers those who read of the agent over HTTP and change nothing, on whatever they connect by: package socket serves
// it on the unix socket.
//
//	endpoints.go  Endpoints: the paths, and what answers at each
//	health.go     is it alive, does it watch the node?
//	events.go     events, as they come
package endpoints

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"jettison/api"
	"jettison/internal/events"
	"jettison/internal/printable"
)

// Options of New.
type Options struct {
	// Turned is how long ago the loop turned last; false: it does not run yet, and why is in words. It is for any goroutine.
	Turned func() (ago time.Duration, why string, ok bool)
	Events *events.Ring
	// Metrics are in the text format of Prometheus, with how many events readers were too slow for. nil: there are none.
	Metrics func(eventsDropped uint64) []byte
}

// Endpoints are the paths. They are safe for concurrent use.
type Endpoints struct {
	o       Options
	paths   map[string]http.HandlerFunc
	patient time.Duration // how long a reader of events may take for what it is sent
	dropped atomic.Uint64 // events that readers were too slow for
}

// patience is how long a reader of events may take for what it is sent.
const patience = 5 * time.Second

// New makes an Endpoints.
func New(o Options) *Endpoints {
	e := &Endpoints{o: o, patient: patience}
	e.paths = map[string]http.HandlerFunc{api.PathHealth: e.health, api.PathReady: e.ready, api.PathEvents: e.events}
	if o.Metrics != nil {
		e.paths[api.PathMetrics] = e.metrics
	}
	return e
}

// Paths are those that are served, sorted.
func (e *Endpoints) Paths() []string {
	var out []string
	for path := range e.paths {
		out = append(out, path)
	}
	slices.Sort(out)
	return out
}

// Find is what answers GET and HEAD at a path; nil: nothing does.
func (e *Endpoints) Find(path string) http.HandlerFunc { return e.paths[path] }

// fail answers with what is wrong, in one line.
func fail(w http.ResponseWriter, status int, text string) {
	body, _ := json.Marshal(api.ErrorAnswer{Error: strings.Join(strings.Fields(text), " ")}) // cannot fail
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = printable.Writer(w).Write(append(body, '\n'))
}

// parameters are those of a request, each known and at most once; ok false: that was not so, and the client was told.
func parameters(w http.ResponseWriter, r *http.Request, known ...string) (values url.Values, ok bool) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, "query: "+err.Error())
		return nil, false
	}
	for name, given := range values {
		text := ""
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			text = "query: this path takes no parameters"
		case !slices.Contains(known, name):
			text = fmt.Sprintf("query: %.60q is no parameter of this path, which takes %s", name, strings.Join(known, ", "))
		case len(given) > 1:
			text = fmt.Sprintf("query: %s is given more than once", name)
		default:
			continue
		}
		fail(w, http.StatusBadRequest, text)
		return nil, false
	}
	return values, true
}

// textFormat is the media type of the text format of Prometheus.
const textFormat = "text/plain; version=0.0.4; charset=utf-8"

// metrics is GET /metrics.
func (e *Endpoints) metrics(w http.ResponseWriter, r *http.Request) {
	if _, ok := parameters(w, r); !ok {
		return
	}
	text := e.o.Metrics(e.dropped.Load())
	w.Header().Set("Content-Type", textFormat)
	_, _ = w.Write(text)
}
