package api

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"sync/atomic"
	"time"

	"jettison/stats"
)

// DefaultSocket is where the agent listens if its configuration names no other path.
const DefaultSocket = "/run/jettison/jettison.sock"

// What the socket serves.
const (
	PathState    = "/v1/state"
	PathPods     = "/v1/pods"
	PathAdmit    = "/v1/admit"
	PathEvents   = "/v1/events"
	PathOutlook  = "/v1/outlook"
	PathRecords  = "/v1/records"
	PathHealth   = "/healthz"
	PathReady    = "/readyz"
	PathMetrics  = "/metrics"
	PathSummary  = "/stats/summary"
	PathResource = "/metrics/resource"
	PathPprof    = "/debug/pprof/" // and what is below it, where the configuration says pprof
)

// Minor is the minor version of what the socket speaks, beside the major one that its paths begin
// with. It grows when something is added that a client may have to know of. An agent serves clients
// of the one before as they were served then, and a Client takes of an agent of the one before what
// that has.
const Minor = 1

// HeaderMinor has the Minor of who speaks, in requests and answers. Agents from before it send
// none.
const HeaderMinor = "Jettison-Minor"

// MaxPodsBytes is the most that one body with pods may have.
const MaxPodsBytes = 64 << 20

// Bounds of an answer. A State of a node with 2,000 pods has less than one MiB.
const (
	maxAnswer  = 16 << 20 // bytes
	maxHeaders = 64 << 10 // bytes
)

// requestLimit is for one request, its answer included. The agent itself answers within 2 s, or
// says that it is too busy; only many pods at once take longer.
const requestLimit = 10 * time.Second

// Options of New. The zero value is a client of DefaultSocket.
type Options struct {
	Socket string        // path; empty: DefaultSocket
	Limit  time.Duration // for one request, its answer included; 0: 10 s
	// Dial connects by another way than to Socket, for a tunnel to another machine. nil: to Socket.
	Dial func(context.Context) (net.Conn, error)
}

// Client asks the agent. It may be used by several goroutines at once. It holds no connection
// between two requests, so there is nothing to close.
type Client struct {
	socket string
	limit  time.Duration
	http   *http.Client
	minor  atomic.Int32 // of the agent that answered last
}

// New makes a client. It does not connect: that there is no agent is an error of the first request.
func New(o Options) *Client {
	c := &Client{socket: cmp.Or(o.Socket, DefaultSocket), limit: cmp.Or(o.Limit, requestLimit)}
	dial := o.Dial
	if dial == nil {
		dial = func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", c.socket)
		}
	}
	c.http = &http.Client{
		Transport: &spoken{c: c, by: &http.Transport{
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders,
		}},
		// the agent redirects nothing
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// AgentMinor is the Minor of the agent that answered last; 0: none has yet, or it is from before it
// said so.
func (c *Client) AgentMinor() int { return int(c.minor.Load()) }

// spoken tells and hears who speaks what.
type spoken struct {
	c  *Client
	by http.RoundTripper
}

func (s *spoken) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set(HeaderMinor, strconv.Itoa(Minor))
	res, err := s.by.RoundTrip(req)
	if err == nil {
		minor, malformed := strconv.ParseUint(res.Header.Get(HeaderMinor), 10, 16)
		if malformed != nil {
			minor = 0
		}
		s.c.minor.Store(int32(minor))
	}
	return res, err
}

// State asks for what the agent knows and does now.
func (c *Client) State(ctx context.Context) (*State, error) {
	text, err := c.ask(ctx, http.MethodGet, PathState, nil)
	if err != nil {
		return nil, err
	}
	s, err := parseState(text)
	if err != nil {
		return nil, c.failed(http.MethodGet, PathState, err)
	}
	return s, nil
}

// parseState reads a State. pods.clients must be there: garbage is removed only where it is 0, so a
// zero that was not said would delete what a client still wants.
func parseState(text []byte) (*State, error) {
	var said struct {
		Pods *struct {
			Clients *int `json:"clients"`
		} `json:"pods"`
	}
	var s State
	err := json.Unmarshal(text, &said)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	switch {
	case err != nil:
		return nil, malformed(err)
	case said.Pods == nil || said.Pods.Clients == nil:
		return nil, malformed(errors.New("not how many pods its clients named"))
	}
	return &s, nil
}

// PutAnswer is what the agent answers where pods were put.
type PutAnswer struct {
	Pods int `json:"pods"` // that were in the body
	// Version is the number of the set of pods that they made. It grows with each change. One that is
	// lower than before: the agent was restarted and knows no pod any more.
	Version uint64 `json:"version"`
	// Refused are those of all that clients have put which are of other pods than the runtime has by
	// their UIDs, by UID. They do nothing. One that comes before the runtime has its pod may be
	// refused later: State has their number.
	Refused []RefusedPod `json:"refused,omitempty"`
}

// RefusedPod is an object that is refused, and the pod that the runtime has by its UID.
type RefusedPod struct {
	Object  stats.PodReference `json:"object"`
	Runtime stats.PodReference `json:"runtime"`
}

// PutPods hands over pods: a []*v1.Pod, or what else encoding/json makes a list of v1.Pod, a
// v1.PodList or a v1.List of. A pod whose UID is known takes the place of what was known of it, and
// others stay. After an error nothing has changed, unless the error is that no answer came.
func (c *Client) PutPods(ctx context.Context, pods any) (PutAnswer, error) {
	return c.put(ctx, PathPods, pods)
}

// ReplacePods is PutPods, and forgets all others that clients have put before: asked by a member of
// socketGroup, those of members.
func (c *Client) ReplacePods(ctx context.Context, pods any) (PutAnswer, error) {
	return c.put(ctx, PathPods+"?replace=true", pods)
}

func (c *Client) put(ctx context.Context, path string, pods any) (answer PutAnswer, err error) {
	body, err := json.Marshal(pods)
	if err != nil {
		return answer, c.failed(http.MethodPut, path, fmt.Errorf("the pods cannot be written as JSON: %w",
			err))
	}
	if v := reflect.ValueOf(pods); v.Kind() == reflect.Slice && v.IsNil() &&
		v.Type().Elem().Kind() != reflect.Uint8 {
		body = []byte("[]") // and not null
	}
	if len(body) > MaxPodsBytes {
		err = fmt.Errorf("the pods have %d bytes, the agent takes %d: put them in parts", len(body),
			MaxPodsBytes)
		return answer, c.failed(http.MethodPut, path, err)
	}
	text, err := c.ask(ctx, http.MethodPut, path, body)
	if err != nil {
		return answer, err
	}
	var said struct {
		Pods    *int         `json:"pods"`
		Version *uint64      `json:"version"`
		Refused []RefusedPod `json:"refused"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return answer, c.failed(http.MethodPut, path, malformed(err))
	}
	if said.Pods == nil || said.Version == nil {
		return answer, c.failed(http.MethodPut, path, malformed(errors.New("not how many pods it took")))
	}
	return PutAnswer{Pods: *said.Pods, Version: *said.Version, Refused: said.Refused}, nil
}

// DeletePod has the agent forget a pod that a client has put. One that no client has put is an
// error with status 404, and for a member of socketGroup one that only root has, 403.
func (c *Client) DeletePod(ctx context.Context, uid string) error {
	path := PathPods + "/" + url.PathEscape(uid)
	if uid == "" {
		return c.failed(http.MethodDelete, path, errors.New("the pod's uid is empty"))
	}
	text, err := c.ask(ctx, http.MethodDelete, path, nil)
	if err == nil && len(text) > 0 { // what says something has not understood the question
		err = c.failed(http.MethodDelete, path,
			malformed(errors.New("a body, where the agent sends none")))
	}
	return err
}

// ask sends one request and returns the whole answer. body: nil sends none.
func (c *Client) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	var from io.Reader
	if body != nil {
		from = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(bounded, method, "http://jettison"+path, from)
	if err != nil {
		return nil, c.failed(method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.failed(method, path, c.explain(ctx, err))
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case res.StatusCode/100 != 2: // its text may be cut off, which does not matter
		err = refused(res.StatusCode, text)
	case err != nil:
		err = c.explain(ctx, err)
	case len(text) > maxAnswer:
		err = malformed(fmt.Errorf("more than %d bytes", maxAnswer))
	default:
		return text, nil
	}
	return nil, c.failed(method, path, err)
}

// lines asks for lines of JSON, each of which may have so many bytes, and hands them over one by
// one. An error says where it was.
func (c *Client) lines(ctx context.Context, path string, follow bool, most int,
	each func([]byte) error) error {
	if !follow {
		bounded, cancel := context.WithTimeout(ctx, c.limit)
		defer cancel()
		ctx = bounded
	}
	if err := c.readLines(ctx, path, most, each); err != nil {
		return c.failed(http.MethodGet, path, err)
	}
	return nil
}

func (c *Client) readLines(ctx context.Context, path string, most int,
	each func([]byte) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://jettison"+path, nil)
	if err != nil {
		return err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.explain(ctx, err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, most)
	lines.Split(wholeLines)
	for lines.Scan() {
		if res.StatusCode != http.StatusOK {
			return refused(res.StatusCode, lines.Bytes())
		}
		if err := each(lines.Bytes()); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return malformed(fmt.Errorf("a line of more than %d bytes", most))
	case err != nil:
		return c.explain(ctx, err)
	case res.StatusCode != http.StatusOK:
		return refused(res.StatusCode, nil)
	}
	return nil
}

// wholeLines has bufio.Scanner pass over a line that was cut off: that the agent hung up is what
// there is to say.
func wholeLines(data []byte, _ bool) (advance int, token []byte, err error) {
	return bufio.ScanLines(data, false)
}
