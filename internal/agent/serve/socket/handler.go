package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"jettison/api"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/base/httpserver"
	"jettison/internal/base/printable"
)

// handler answers requests. The paths are documented in docs/reference/socket.md.
type handler struct {
	pods      *podstore.Store
	state     func() any
	outlook   func(context.Context) (*api.Outlook, error)
	admission Admission     // nil: no admission
	reads     Reads         // nil: no further paths
	limit     time.Duration // for one request
	body      int64         // limit of a body in bytes
	progress  time.Duration // for each progressBytes of a body; 0: no limit

	encoding sync.Mutex // held while an answer is encoded and counted, one at a time
}

// minor is the minor version of the socket's protocol.
var minor = strconv.Itoa(api.Minor)

// failure is an error answer, with a text of one line.
type failure struct {
	status int
	text   string
	allow  string // methods of the path, for status 405
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := connOf(r)
	w.Header().Set(api.HeaderMinor, minor)
	switch {
	case c == nil || c.refusal == nil && c.role == stranger:
		h.fail(w, errStranger)
	case c.refusal != nil:
		w.Header().Set("Connection", "close")
		if c.role == owner && isProbe(r) {
			h.serve(w, r)
			return
		}
		h.fail(w, c.refusal)
	case c.role == member && !memberMay(r):
		h.fail(w, errMember)
	default:
		h.serve(w, r)
	}
}

// serve finds and calls the handler of the path and method.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	var read http.HandlerFunc
	if h.reads != nil {
		read = h.reads.Find(r.URL.Path)
	}
	if read != nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		if by(r) != podstore.ByRoot {
			// All answers to members share the budget for data that clients make the agent hold.
			w = &httpserver.Answer{
				ResponseWriter: w, Hold: h.pods.Hold,
				Refuse: func(w http.ResponseWriter) { h.fail(w, errBusy) },
			}
		}
		read(w, r) // has its own time limits
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.limit)
	defer cancel()
	r = r.WithContext(ctx)
	escaped, isPod := strings.CutPrefix(r.URL.EscapedPath(), api.PathPods+"/")
	methods := map[string]func(http.ResponseWriter, *http.Request) *failure{}
	switch {
	case r.URL.Path == api.PathPods:
		methods[http.MethodPut] = h.putPods
	case isPod && escaped != "" && !strings.Contains(escaped, "/"):
		methods[http.MethodDelete] = func(w http.ResponseWriter, r *http.Request) *failure {
			return h.deletePod(w, r, escaped)
		}
	case r.URL.Path == api.PathAdmit:
		methods[http.MethodPost] = h.postAdmit
	case r.URL.Path == api.PathState:
		methods[http.MethodGet], methods[http.MethodHead] = h.getState, h.getState
	case r.URL.Path == api.PathOutlook:
		methods[http.MethodGet] = h.getOutlook
	case read != nil: // the method is wrong
		methods[http.MethodGet], methods[http.MethodHead] = nil, nil
	default:
		text := fmt.Sprintf("no path %.100q: the paths are %s", r.URL.Path,
			strings.Join(h.paths(), ", "))
		h.fail(w, &failure{status: http.StatusNotFound, text: text})
		return
	}
	handle := methods[r.Method]
	if handle == nil {
		var allow []string
		for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost,
			http.MethodDelete} {
			if _, has := methods[m]; has {
				allow = append(allow, m)
			}
		}
		text := fmt.Sprintf("method %.20q not allowed: use %s", r.Method,
			strings.Join(allow, " or "))
		h.fail(w, &failure{status: http.StatusMethodNotAllowed, text: text,
			allow: strings.Join(allow, ", ")})
		return
	}
	if f := handle(w, r); f != nil {
		h.fail(w, f)
	}
}

// paths returns the paths for error texts, sorted.
func (h *handler) paths() []string {
	out := []string{api.PathAdmit, api.PathPods, api.PathPods + "/{uid}", api.PathState,
		api.PathOutlook}
	if h.reads != nil {
		out = append(out, h.reads.Paths()...)
	}
	slices.Sort(out)
	return out
}

// putPods serves PUT /v1/pods[?replace=true].
func (h *handler) putPods(w http.ResponseWriter, r *http.Request) *failure {
	replace, f := flag(r, "replace")
	if f != nil {
		return f
	}
	if f := isJSON(r); f != nil {
		return f
	}
	if r.ContentLength > h.body {
		return tooLarge(h.body)
	}
	pods, version, err := h.pods.Put(h.bodyOf(r.Context(), w, r, h.body), replace, by(r))
	if err != nil {
		return putFailure(r.Context(), err)
	}
	answer := api.PutAnswer{Pods: pods, Version: version}
	for _, known := range h.pods.Snapshot().Refused {
		answer.Refused = append(answer.Refused, api.RefusedPod{Object: known.Object,
			Runtime: known.Runtime})
	}
	return h.answer(w, r, answer)
}

// putFailure returns the answer for an error of the pod store.
func putFailure(ctx context.Context, err error) *failure {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return tooLarge(large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &failure{status: http.StatusRequestTimeout, text: "timeout while reading the body"}
	case ctx.Err() != nil:
		return &failure{status: http.StatusServiceUnavailable,
			text: "the request timed out: try again"}
	case errors.Is(err, podstore.ErrBusy):
		return &failure{status: http.StatusServiceUnavailable, text: err.Error()}
	case errors.Is(err, podstore.ErrTooLarge):
		return &failure{status: http.StatusRequestEntityTooLarge, text: err.Error()}
	case errors.Is(err, podstore.ErrFull):
		return &failure{status: http.StatusInsufficientStorage, text: err.Error()}
	}
	return bad(err)
}

func tooLarge(limit int64) *failure {
	return &failure{status: http.StatusRequestEntityTooLarge,
		text: fmt.Sprintf("the body is larger than %d bytes", limit)}
}

func bad(err error) *failure { return &failure{status: http.StatusBadRequest, text: err.Error()} }

// deletePod serves DELETE /v1/pods/{uid}.
func (h *handler) deletePod(w http.ResponseWriter, r *http.Request, escaped string) *failure {
	if _, err := query(r); err != nil {
		return bad(err)
	}
	uid, err := url.PathUnescape(escaped)
	if err != nil {
		return bad(err)
	}
	switch err := h.pods.Delete(uid, by(r)); {
	case errors.Is(err, podstore.ErrOwnedByRoot):
		return &failure{status: http.StatusForbidden,
			text: fmt.Sprintf("forbidden: the pod with the uid %.100q: %v", uid, err)}
	case err != nil:
		return &failure{status: http.StatusNotFound,
			text: fmt.Sprintf("no client provided a pod with the uid %.100q", uid)}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// getState serves GET /v1/state: a value that the loop publishes.
func (h *handler) getState(w http.ResponseWriter, r *http.Request) *failure {
	if _, err := query(r); err != nil {
		return bad(err)
	}
	var value any
	if h.state != nil {
		value = h.state()
	}
	if value == nil {
		return errNoState
	}
	return h.answer(w, r, value)
}

// getOutlook serves GET /v1/outlook.
func (h *handler) getOutlook(w http.ResponseWriter, r *http.Request) *failure {
	if _, err := query(r); err != nil {
		return bad(err)
	}
	if h.outlook == nil {
		return errNoState
	}
	value, err := h.outlook(r.Context())
	if err != nil {
		return &failure{status: http.StatusServiceUnavailable, text: err.Error()}
	}
	return h.answer(w, r, value)
}

// query returns the parameters of a request. Each must be known and occur at most once.
func query(r *http.Request, known ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	rest := len(values)
	for _, name := range known {
		if len(values[name]) > 1 {
			return nil, fmt.Errorf("query: %s is given more than once", name)
		}
		if values.Has(name) {
			rest--
		}
	}
	if rest == 0 {
		return values, nil
	}
	if len(known) == 0 {
		return nil, errors.New("query: this path has no parameters")
	}
	return nil, fmt.Errorf("query: this path has only %s", strings.Join(known, ", "))
}

// isJSON rejects another Content-Type than JSON. curl -T sends none.
func isJSON(r *http.Request) *failure {
	if f := uncompressed(r); f != nil {
		return f
	}
	given := r.Header.Get("Content-Type")
	if given == "" {
		return nil
	}
	if t, _, err := mime.ParseMediaType(given); err != nil || t != "application/json" {
		return unsupported(fmt.Sprintf("Content-Type %.60q: want application/json", given))
	}
	return nil
}

func uncompressed(r *http.Request) *failure {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return unsupported(fmt.Sprintf("Content-Encoding %.40q: send the text uncompressed", e))
	}
	return nil
}

func unsupported(text string) *failure {
	return &failure{status: http.StatusUnsupportedMediaType, text: text}
}

// connOf returns the connection of a request; nil: the server is not the socket's.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// by returns the role of the client in the pod store.
func by(r *http.Request) podstore.Role {
	if c := connOf(r); c != nil && c.role == owner {
		return podstore.ByRoot
	}
	return podstore.ByMember
}

// progressBytes is the part of a body for which a client has the time of progress.
const progressBytes = 1 << 20

// body reads the body of a request. It fails when the request ends, when the server closes, and
// when the client stalls, since the decoded part is in memory.
type body struct {
	ctx      context.Context
	r        io.Reader
	conn     *conn // nil: the server is not the socket's
	progress time.Duration
	read     int64
	next     int64 // bytes to be read before the deadline is renewed
}

func (h *handler) bodyOf(ctx context.Context, w http.ResponseWriter, r *http.Request,
	limit int64) *body {
	return &body{ctx: ctx, r: http.MaxBytesReader(w, r.Body, limit), conn: connOf(r),
		progress: h.progress}
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.conn.readBody(b.r, p)
	b.read += int64(n)
	// at the end of a body net/http removes the deadline
	if b.conn != nil && b.progress > 0 && err == nil && b.read >= b.next {
		b.next = b.read + progressBytes
		b.conn.setProgressDeadline(b.progress)
	}
	return n, err
}

// errBusy is the answer when unread answers and bodies use all of the budget.
var errBusy = &failure{status: http.StatusServiceUnavailable,
	text: "too many unread answers and large bodies: try again"}

// answer sends a value whole or not at all. The encoded value stays in memory until the client has
// read it, so an answer to a member counts against the budget of all data that clients make the
// agent hold. An answer to root does not: members cannot keep root from observing the agent.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, v any) *failure {
	h.encoding.Lock()
	text, err := json.Marshal(v)
	if err == nil && by(r) != podstore.ByRoot {
		release, ok := h.pods.Hold(len(text))
		if !ok {
			h.encoding.Unlock()
			return errBusy
		}
		defer release()
	}
	h.encoding.Unlock()
	if err != nil {
		return &failure{status: http.StatusInternalServerError, text: "encode as JSON: " +
			err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	out := printable.Writer(w)
	_, _ = out.Write(text)
	_, _ = out.Write([]byte("\n")) // fails only if the client has closed
	return nil
}

func (h *handler) fail(w http.ResponseWriter, f *failure) {
	// cannot fail
	text, _ := json.Marshal(api.ErrorAnswer{Error: strings.Join(strings.Fields(f.text), " ")})
	w.Header().Set("Content-Type", "application/json")
	if f.allow != "" {
		w.Header().Set("Allow", f.allow)
	}
	if f.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(f.status)
	_, _ = printable.Writer(w).Write(append(text, '\n'))
}
