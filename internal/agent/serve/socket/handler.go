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

// handler answers requests. What is served is in docs/reference/socket.md.
type handler struct {
	pods      *podstore.Store
	state     func() any
	outlook   func() any
	admission Admission     // nil: no pod is decided on
	reads     Reads         // nil: nothing else is read
	limit     time.Duration // for one request
	body      int64         // bytes that one may have
	progress  time.Duration // for each progressBytes of a body; 0: it may stall

	encoding sync.Mutex // held for one answer at a time, until it is taken into account
}

// minor is what is spoken here.
var minor = strconv.Itoa(api.Minor)

// failure is an answer that says what is wrong, in one line.
type failure struct {
	status int
	text   string
	allow  string // methods that the path has, of a 405
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

// serve finds the path and the method.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	var read http.HandlerFunc
	if h.reads != nil {
		read = h.reads.Find(r.URL.Path)
	}
	if read != nil && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		if by(r) != podstore.ByRoot {
			// The budget is that of all that clients have the agent keep, as for other answers to members.
			w = &httpserver.Answer{
				ResponseWriter: w, Hold: h.pods.Hold,
				Refuse: func(w http.ResponseWriter) { h.fail(w, errBusy) },
			}
		}
		read(w, r) // for as long as it takes: it has limits of its own
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
	case read != nil: // by another method
		methods[http.MethodGet], methods[http.MethodHead] = nil, nil
	default:
		text := fmt.Sprintf("no such path: %.100q: there are %s", r.URL.Path,
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
		text := fmt.Sprintf("%.20q is no method of this path: use %s", r.Method,
			strings.Join(allow, " or "))
		h.fail(w, &failure{status: http.StatusMethodNotAllowed, text: text,
			allow: strings.Join(allow, ", ")})
		return
	}
	if f := handle(w, r); f != nil {
		h.fail(w, f)
	}
}

// paths are those that there are, for people.
func (h *handler) paths() []string {
	out := []string{api.PathAdmit, api.PathPods, api.PathPods + "/{uid}", api.PathState,
		api.PathOutlook}
	if h.reads != nil {
		out = append(out, h.reads.Paths()...)
	}
	slices.Sort(out)
	return out
}

// putPods is PUT /v1/pods[?replace=true].
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

// putFailure finds the status of what went wrong.
func putFailure(ctx context.Context, err error) *failure {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return tooLarge(large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &failure{status: http.StatusRequestTimeout, text: "the body took too long to arrive"}
	case ctx.Err() != nil:
		return &failure{status: http.StatusServiceUnavailable,
			text: "the request took too long: try again"}
	case errors.Is(err, podstore.ErrBusy):
		return &failure{status: http.StatusServiceUnavailable, text: err.Error()}
	case errors.Is(err, podstore.ErrTooLarge):
		return &failure{status: http.StatusRequestEntityTooLarge, text: err.Error()}
	case errors.Is(err, podstore.ErrFull):
		return &failure{status: http.StatusInsufficientStorage, text: err.Error()}
	}
	return bad(err)
}

func tooLarge(most int64) *failure {
	return &failure{status: http.StatusRequestEntityTooLarge,
		text: fmt.Sprintf("the body is larger than %d bytes", most)}
}

func bad(err error) *failure { return &failure{status: http.StatusBadRequest, text: err.Error()} }

// deletePod is DELETE /v1/pods/{uid}.
func (h *handler) deletePod(w http.ResponseWriter, r *http.Request, escaped string) *failure {
	if _, err := query(r); err != nil {
		return bad(err)
	}
	uid, err := url.PathUnescape(escaped)
	if err != nil {
		return bad(err)
	}
	switch err := h.pods.Delete(uid, by(r)); {
	case errors.Is(err, podstore.ErrRoots):
		return &failure{status: http.StatusForbidden,
			text: fmt.Sprintf("forbidden: the pod with the uid %.100q: %v", uid, err)}
	case err != nil:
		return &failure{status: http.StatusNotFound,
			text: fmt.Sprintf("no client has put a pod with the uid %.100q", uid)}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// getState is GET /v1/state.
func (h *handler) getState(w http.ResponseWriter, r *http.Request) *failure {
	return h.tell(w, r, h.state)
}

// getOutlook is GET /v1/outlook.
func (h *handler) getOutlook(w http.ResponseWriter, r *http.Request) *failure {
	return h.tell(w, r, h.outlook)
}

// tell answers with what the loop says; nil: it says nothing.
func (h *handler) tell(w http.ResponseWriter, r *http.Request, ask func() any) *failure {
	if _, err := query(r); err != nil {
		return bad(err)
	}
	var said any
	if ask != nil {
		said = ask()
	}
	if said == nil {
		return errNoState
	}
	return h.answer(w, r, said)
}

// query are a request's parameters: those that are known, each at most once.
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
		return nil, errors.New("query: this path takes no parameters")
	}
	return nil, fmt.Errorf("query: this path takes only %s", strings.Join(known, ", "))
}

// isJSON refuses what says that it is something else. No Content-Type at all is what curl -T sends.
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
		return unsupported(fmt.Sprintf("Content-Encoding %.40q: send the text as it is", e))
	}
	return nil
}

func unsupported(text string) *failure {
	return &failure{status: http.StatusUnsupportedMediaType, text: text}
}

// connOf is the connection that a request came by; nil: it is not one of the socket's.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// by is who asks.
func by(r *http.Request) podstore.By {
	if c := connOf(r); c != nil && c.role == owner {
		return podstore.ByRoot
	}
	return podstore.ByMember
}

// progressBytes are those of a body for which a client has so much time.
const progressBytes = 1 << 20

// body ends when the request does, when the server is closed, and when it stalls: what has come of
// it is in memory.
type body struct {
	ctx      context.Context
	r        io.Reader
	conn     *conn // nil: none of the socket's
	progress time.Duration
	read     int64
	next     int64 // how much is to be read by the deadline
}

func (h *handler) bodyOf(ctx context.Context, w http.ResponseWriter, r *http.Request,
	most int64) *body {
	return &body{ctx: ctx, r: http.MaxBytesReader(w, r.Body, most), conn: connOf(r),
		progress: h.progress}
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.conn.readBody(b.r, p)
	b.read += int64(n)
	// at the end net/http takes the deadline away
	if b.conn != nil && b.progress > 0 && err == nil && b.read >= b.next {
		b.next = b.read + progressBytes
		b.conn.within(b.progress)
	}
	return n, err
}

// errBusy is the answer where those that others do not read take all the memory.
var errBusy = &failure{status: http.StatusServiceUnavailable,
	text: "too much is being sent and put at the same time: try again"}

// answer writes a value, whole or not at all. It is in memory for as long as a client takes to read
// it, so a member's comes out of the budget of all that clients have the agent keep. Root's does
// not: who wants to know what goes on is told, whatever members do.
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
		return &failure{status: http.StatusInternalServerError, text: "cannot be written as JSON: " +
			err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	out := printable.Writer(w)
	_, _ = out.Write(text)
	_, _ = out.Write([]byte("\n")) // the client is gone: there is no one to tell
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
