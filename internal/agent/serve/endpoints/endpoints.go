// Package endpoints answers read-only HTTP requests to the agent. Packages socket and remote serve
// it on the unix socket and on the network.
//
//	endpoints.go  Endpoints: the paths and their handlers
//	health.go     liveness and readiness
//	events.go     events, also as a stream
//	records.go    eviction records, also as a stream
//	stats.go      resource usage of the node and its pods, in the kubelet's formats
//	profile.go    profiles of the process, if the configuration enables them
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
	// LoopAge returns the time since the loop last ran; false: it does not run yet, and why is the
	// reason. It is called from any goroutine.
	LoopAge func() (ago time.Duration, why string, ok bool)
	Events  *eventlog.Ring
	// Records are the eviction records; nil: they are not served.
	Records Records
	// Metrics returns the metrics in the text format of Prometheus. eventsDropped is the number of
	// events that slow readers lost. nil: metrics are not served.
	Metrics func(eventsDropped uint64) []byte
	// Stats takes the resource usage of the node and its pods; nil: it is not served.
	Stats *nodestats.Taker
	// State returns the answer to GET /v1/state on the network; package socket has its own.
	State func() any
	// Kubelet reports whether a kubelet runs on this node, which serves the same stats. It is
	// called from any goroutine; nil: no kubelet.
	Kubelet func() bool
	Pprof   bool
}

// Endpoints serves the paths. It is safe for concurrent use.
type Endpoints struct {
	o       Options
	paths   map[string]http.HandlerFunc
	patient time.Duration // readTimeout; tests change it
	dropped atomic.Uint64 // events that slow readers lost
	encoded encoded       // the last Summary
}

// readTimeout is the time within which a reader must read a part of a stream.
const readTimeout = 5 * time.Second

// New returns the Endpoints of the options.
func New(o Options) *Endpoints {
	e := &Endpoints{o: o, patient: readTimeout}
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

// Paths returns the served paths, sorted.
func (e *Endpoints) Paths() []string {
	var out []string
	for path := range e.paths {
		out = append(out, path)
	}
	slices.Sort(out)
	return out
}

// Find returns the handler of GET and HEAD for a path on the unix socket; nil: no such path.
func (e *Endpoints) Find(path string) http.HandlerFunc {
	if e.o.Pprof && strings.HasPrefix(path, api.PathPprof) {
		return profile
	}
	return e.paths[path]
}

// Remote returns the handler of a path on the network; nil: no such path. why is the reason if the
// path exists on the unix socket only.
func (e *Endpoints) Remote(path string) (h http.HandlerFunc, why string) {
	switch {
	case path == api.PathState && e.o.State != nil:
		return e.state, ""
	case path == api.PathRecords:
		return nil, "records are served on the unix socket only"
	case (path == api.PathSummary || path == api.PathResource) && e.o.Kubelet != nil && e.o.Kubelet():
		return nil, "with a kubelet on the node this path is served on the unix socket only: query the " +
			"kubelet, so that sums over the cluster count each pod once"
	}
	return e.paths[path], ""
}

// fail answers with an error text in one line.
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

// parameters returns the parameters of a request. Each must be known and occur at most once. ok
// false: one was not, and the error is sent.
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
			text = "query: this path has no parameters"
		case !slices.Contains(known, name):
			text = fmt.Sprintf("query: unknown parameter %.60q: this path has %s", name,
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

// flag returns a parameter that is true or false. ok false: it is neither, and the error is sent.
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

// metrics serves GET /metrics.
func (e *Endpoints) metrics(w http.ResponseWriter, r *http.Request) {
	if _, ok := parameters(w, r); !ok {
		return
	}
	text := e.o.Metrics(e.dropped.Load())
	w.Header().Set("Content-Type", textFormat)
	_, _ = w.Write(text)
}

// state serves GET /v1/state.
func (e *Endpoints) state(w http.ResponseWriter, r *http.Request) {
	if _, ok := parameters(w, r); !ok {
		return
	}
	state := e.o.State()
	if state == nil {
		fail(w, http.StatusServiceUnavailable, "no state yet, or the loop hangs: try again")
		return
	}
	text, err := json.Marshal(state)
	if err != nil {
		fail(w, http.StatusInternalServerError, "encode as JSON: "+err.Error())
		return
	}
	sendJSON(w, text)
}

func sendJSON(w http.ResponseWriter, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	out := printable.Writer(w)
	_, _ = out.Write(text)
	_, _ = out.Write([]byte("\n")) // fails only if the client has closed
}
