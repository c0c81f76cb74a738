// Package endpoints answers those who read of the agent over HTTP and change nothing, on whatever
// they connect by: package socket serves it on the unix socket.
//
//	endpoints.go  Endpoints: the paths, and what answers at each
//	health.go     is it alive, does it watch the node?
//	events.go     events, as they come
//	records.go    records of evictions, as they come and change
//	stats.go      what the node and its pods use, as a kubelet tells it
//	profile.go    profiles of the process, where the configuration says so
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
	"jettison/internal/agent/nodestats"
	"jettison/internal/agent/serve/eventlog"
	"jettison/internal/base/printable"
)

// Options of New.
type Options struct {
	// Turned is how long ago the loop turned last; false: it does not run yet, and why is in words. It
	// is for any goroutine.
	Turned func() (ago time.Duration, why string, ok bool)
	Events *eventlog.Ring
	// Records are those of evictions. nil: that is not told.
	Records Records
	// Metrics are in the text format of Prometheus, with how many events readers were too slow for.
	// nil: there are none.
	Metrics func(eventsDropped uint64) []byte
	// Stats are what the node and its pods use. nil: that is not told.
	Stats *nodestats.Taker
	// State is what GET /v1/state answers with where it is not package socket that does.
	State func() any
	// Kubelet: one is on this node, so that others get from it what it serves as well. For any
	// goroutine; nil: none is.
	Kubelet func() bool
	Pprof   bool
}

// Endpoints are the paths. They are safe for concurrent use.
type Endpoints struct {
	o       Options
	paths   map[string]http.HandlerFunc
	patient time.Duration // how long a reader of events may take for what it is sent
	dropped atomic.Uint64 // events that readers were too slow for
	encoded encoded       // the last Summary
}

// patience is how long a reader of events may take for what it is sent.
const patience = 5 * time.Second

// New makes an Endpoints.
func New(o Options) *Endpoints {
	e := &Endpoints{o: o, patient: patience}
	e.paths = map[string]http.HandlerFunc{api.PathHealth: e.health, api.PathReady: e.ready,
		api.PathEvents: e.events}
	if o.Records != nil {
		e.paths[api.PathRecords] = e.records
	}
	if o.Metrics != nil {
		e.paths[api.PathMetrics] = e.metrics
	}
	if o.Stats != nil {
		e.paths[api.PathSummary], e.paths[api.PathResource] = e.summary, e.resource
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

// Find is what answers GET and HEAD at a path on the unix socket; nil: nothing does.
func (e *Endpoints) Find(path string) http.HandlerFunc {
	if e.o.Pprof && strings.HasPrefix(path, api.PathPprof) {
		return profile
	}
	return e.paths[path]
}

// Remote is what answers there on the network, as Find; why it does not, although the unix socket
// has it, is in words.
func (e *Endpoints) Remote(path string) (h http.HandlerFunc, why string) {
	switch {
	case path == api.PathState && e.o.State != nil:
		return e.state, ""
	case path == api.PathRecords:
		return nil, "records are on the unix socket only"
	case (path == api.PathSummary || path == api.PathResource) && e.o.Kubelet != nil && e.o.Kubelet():
		return nil, "beside a kubelet this is on the unix socket only: ask the kubelet, or sums over the cluster count twice"
	}
	return e.paths[path], ""
}

// fail answers with what is wrong, in one line.
func fail(w http.ResponseWriter, status int, text string) {
	// cannot fail
	body, _ := json.Marshal(api.ErrorAnswer{Error: strings.Join(strings.Fields(text), " ")})
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = printable.Writer(w).Write(append(body, '\n'))
}

// parameters are those of a request, each known and at most once; ok false: that was not so, and
// the client was told.
func parameters(w http.ResponseWriter, r *http.Request, known ...string) (values url.Values,
	ok bool) {
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
			text = fmt.Sprintf("query: %.60q is no parameter of this path, which takes %s", name,
				strings.Join(known, ", "))
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

// flag is a parameter that is true or false; ok false: it is neither, and the client was told.
func flag(w http.ResponseWriter, values url.Values, name string) (is, ok bool) {
	switch text := values.Get(name); text {
	case "true":
		return true, true
	case "", "false":
		return false, true
	default:
		fail(w, http.StatusBadRequest, fmt.Sprintf("%s=%.20q: want true or false", name, text))
		return false, false
	}
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

// state is GET /v1/state.
func (e *Endpoints) state(w http.ResponseWriter, r *http.Request) {
	if _, ok := parameters(w, r); !ok {
		return
	}
	state := e.o.State()
	if state == nil {
		fail(w, http.StatusServiceUnavailable, "there is no state yet, or the loop hangs: try again")
		return
	}
	text, err := json.Marshal(state)
	if err != nil {
		fail(w, http.StatusInternalServerError, "cannot be written as JSON: "+err.Error())
		return
	}
	sendJSON(w, text)
}

func sendJSON(w http.ResponseWriter, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	out := printable.Writer(w)
	_, _ = out.Write(text)
	_, _ = out.Write([]byte("\n")) // the client is gone: there is no one to tell
}
