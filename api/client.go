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

// DefaultSocket is the path of the agent's socket if its configuration sets no other.
const DefaultSocket = "/run/jettison/jettison.sock"

// Paths that the socket serves.
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
	PathPprof    = "/debug/pprof/" // and paths below it; only if the configuration enables pprof
)

// Minor is the minor version of the socket's protocol. The paths begin with the major version. The
// minor version grows with each addition that clients may need to detect. Agent and Client each
// support the previous minor version of the other.
const Minor = 1

// HeaderMinor is the HTTP header that carries the sender's Minor in requests and answers. Agents
// older than this header omit it.
const HeaderMinor = "Jettison-Minor"

// MaxPodsBytes limits the size of one request body with pods.
const MaxPodsBytes = 64 << 20

// Limits of an answer. A State of a node with 2,000 pods is smaller than 1 MiB.
const (
	maxAnswer  = 16 << 20 // bytes
	maxHeaders = 64 << 10 // bytes
)

// requestLimit is the default timeout of a request including its answer. The agent answers within
// 2 s or reports that it is too busy. Only requests with many pods take longer.
const requestLimit = 10 * time.Second

// Options configures New. The zero value selects DefaultSocket.
type Options struct {
	Socket string        // path; empty: DefaultSocket
	Limit  time.Duration // timeout of a request including its answer; 0: 10 s
	// Dial replaces the connection to Socket, for example by a tunnel to another machine.
	Dial func(context.Context) (net.Conn, error)
	// Transport replaces Dial, for example by a transport that sends all requests over one connection.
	// Socket is then only the agent's name in errors.
	Transport http.RoundTripper
}

// Client sends requests to the agent. Several goroutines may use it concurrently. Without
// Options.Transport it keeps no connection open between requests. It needs no Close.
type Client struct {
	socket string
	limit  time.Duration
	http   *http.Client
	minor  atomic.Int32 // of the agent that answered last
}

// New returns a client. It does not connect: the first request fails if no agent is running.
func New(o Options) *Client {
	c := &Client{socket: cmp.Or(o.Socket, DefaultSocket), limit: cmp.Or(o.Limit, requestLimit)}
	dial := o.Dial
	if dial == nil {
		dial = func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", c.socket)
		}
	}
	base := o.Transport
	if base == nil {
		base = &http.Transport{
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeaders,
		}
	}
	c.http = &http.Client{
		Transport: &versionTransport{c: c, base: base},
		// the agent never redirects
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// AgentMinor returns the Minor of the agent that answered last. It returns 0 before the first
// answer, and for agents older than HeaderMinor.
func (c *Client) AgentMinor() int { return int(c.minor.Load()) }

// versionTransport sends HeaderMinor with each request and stores the minor version from the
// answer.
type versionTransport struct {
	c    *Client
	base http.RoundTripper
}

func (s *versionTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set(HeaderMinor, strconv.Itoa(Minor))
	res, err := s.base.RoundTrip(req)
	if err == nil {
		minor, malformed := strconv.ParseUint(res.Header.Get(HeaderMinor), 10, 16)
		if malformed != nil {
			minor = 0
		}
		s.c.minor.Store(int32(minor))
	}
	return res, err
}

// State requests a snapshot of the agent.
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

// parseState decodes a State. It requires pods.clients: leftovers are removed only if that number
// is 0, so a missing value read as 0 could delete files of pods that a client still provides.
func parseState(text []byte) (*State, error) {
	var required struct {
		Pods *struct {
			Clients *int `json:"clients"`
		} `json:"pods"`
	}
	var s State
	err := json.Unmarshal(text, &required)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	switch {
	case err != nil:
		return nil, malformed(err)
	case required.Pods == nil || required.Pods.Clients == nil:
		return nil, malformed(errors.New("field pods.clients is missing"))
	}
	return &s, nil
}

// PutAnswer is the agent's answer to PutPods and ReplacePods.
type PutAnswer struct {
	Pods int `json:"pods"` // number of pods in the body
	// Version numbers the resulting set of pods and grows with each change. If it is lower than
	// before, the agent was restarted and has lost all pods of clients.
	Version uint64 `json:"version"`
	// Refused lists, by UID, the pod objects of all clients that the agent ignores: the runtime has
	// another pod with that UID. The agent may also refuse an object later, when the runtime lists
	// its pod; State counts all refused objects.
	Refused []RefusedPod `json:"refused,omitempty"`
}

// RefusedPod is a refused pod object, and the pod with its UID in the runtime.
type RefusedPod struct {
	Object  stats.PodReference `json:"object"`
	Runtime stats.PodReference `json:"runtime"`
}

// PutPods sends pods: a []*v1.Pod, or any value that encoding/json encodes as a list of v1.Pod, a
// v1.PodList or a v1.List. A pod replaces the one with the same UID; the agent keeps all others.
// After an error nothing has changed, unless the answer was lost.
func (c *Client) PutPods(ctx context.Context, pods any) (PutAnswer, error) {
	return c.put(ctx, PathPods, pods)
}

// ReplacePods does the same as PutPods and deletes all other pods that clients have put. If the
// caller is not root but a member of socketGroup, it deletes only pods that members have put.
func (c *Client) ReplacePods(ctx context.Context, pods any) (PutAnswer, error) {
	return c.put(ctx, PathPods+"?replace=true", pods)
}

func (c *Client) put(ctx context.Context, path string, pods any) (answer PutAnswer, err error) {
	body, err := json.Marshal(pods)
	if err != nil {
		return answer, c.failed(http.MethodPut, path, fmt.Errorf("encode pods as JSON: %w", err))
	}
	if v := reflect.ValueOf(pods); v.Kind() == reflect.Slice && v.IsNil() &&
		v.Type().Elem().Kind() != reflect.Uint8 {
		body = []byte("[]") // and not null
	}
	if len(body) > MaxPodsBytes {
		err = fmt.Errorf("pods are %d bytes, limit is %d: send them in several requests", len(body),
			MaxPodsBytes)
		return answer, c.failed(http.MethodPut, path, err)
	}
	text, err := c.ask(ctx, http.MethodPut, path, body)
	if err != nil {
		return answer, err
	}
	var required struct {
		Pods    *int         `json:"pods"`
		Version *uint64      `json:"version"`
		Refused []RefusedPod `json:"refused"`
	}
	if err := json.Unmarshal(text, &required); err != nil {
		return answer, c.failed(http.MethodPut, path, malformed(err))
	}
	if required.Pods == nil || required.Version == nil {
		err := errors.New("field pods or version is missing")
		return answer, c.failed(http.MethodPut, path, malformed(err))
	}
	return PutAnswer{Pods: *required.Pods, Version: *required.Version, Refused: required.Refused}, nil
}

// DeletePod makes the agent forget a pod that a client has put. It fails with status 404 for a pod
// that no client has put, and with 403 for a member of socketGroup if root put the pod.
func (c *Client) DeletePod(ctx context.Context, uid string) error {
	path := PathPods + "/" + url.PathEscape(uid)
	if uid == "" {
		return c.failed(http.MethodDelete, path, errors.New("pod UID is empty"))
	}
	text, err := c.ask(ctx, http.MethodDelete, path, nil)
	if err == nil && len(text) > 0 { // an agent sends no body here
		err = c.failed(http.MethodDelete, path, malformed(errors.New("unexpected body")))
	}
	return err
}

// ask sends one request and returns the whole answer. With a nil body the request has none.
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
	case res.StatusCode/100 != 2: // the text may be truncated
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

// lines requests JSON lines of at most most bytes, and calls each with every line. Errors name the
// agent and the path.
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
		return malformed(fmt.Errorf("line longer than %d bytes", most))
	case err != nil:
		return c.explain(ctx, err)
	case res.StatusCode != http.StatusOK:
		return refused(res.StatusCode, nil)
	}
	return nil
}

// wholeLines splits lines for bufio.Scanner and drops a truncated last line. The caller reports
// separately that the agent closed the connection.
func wholeLines(data []byte, _ bool) (advance int, token []byte, err error) {
	return bufio.ScanLines(data, false)
}
