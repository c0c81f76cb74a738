package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"jettison/api"
	"jettison/internal/agent/objects/podstore"
	"jettison/internal/agent/serve/endpoints"
	"jettison/internal/agent/serve/eventlog"
	"jettison/internal/agent/serve/socket"
	"jettison/internal/node/records"
	"jettison/stats"
)

// testAgent is a fake agent that serves a socket with the agent's handlers.
type testAgent struct {
	t        *testing.T
	path     string
	server   *socket.Server
	log      *slog.Logger
	onLook   func() // called before the outlook is returned; nil: none
	mu       sync.Mutex
	records  []*api.Record
	unranked error // why there is no ranking; nil: there is one
}

func newTestAgent(t *testing.T) *testAgent {
	t.Helper()
	dir, err := os.MkdirTemp("", "u") // socket paths are limited to 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &testAgent{t: t, path: filepath.Join(dir, "s.sock")}
}

func (a *testAgent) start() {
	a.t.Helper()
	ring := eventlog.NewRing(time.Now())
	a.log = slog.New(eventlog.NewHandler(ring, slog.DiscardHandler))
	var err error
	a.server, err = socket.Listen(socket.Options{
		Path: a.path, Pods: podstore.New(),
		State: func() any { return stateAt(time.Now(), 500) },
		Outlook: func(context.Context) (*api.Outlook, error) {
			if a.onLook != nil {
				a.onLook()
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.unranked != nil {
				return nil, a.unranked
			}
			return &api.Outlook{Time: time.Now(), Thresholds: []api.ThresholdOutlook{{Signal: stats.SignalMemoryAvailable}}}, nil
		},
		Reads: endpoints.New(endpoints.Options{Events: ring, Records: recent{agent: a}}),
	})
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *testAgent) stop() {
	a.t.Helper()
	if err := a.server.Close(); err != nil {
		a.t.Fatal(err)
	}
}

// browser reads a stream.
type browser struct {
	t     *testing.T
	lines *bufio.Scanner
}

// run serves the page until the test ends, and opens its stream.
func (a *testAgent) run() *browser { return a.runWith("") }

// runWith does so with more parameters of the stream.
func (a *testAgent) runWith(parameters string) *browser {
	a.t.Helper()
	ctx, cancel := context.WithCancel(a.t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Socket: a.path, Listen: "127.0.0.1:0", Version: "test", Node: "w1"}, in, io.Discard)
	}()
	a.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			a.t.Error(err)
		}
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		a.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.Replace(strings.TrimSpace(address), "/?", "/stream?", 1)+parameters, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		a.t.Fatalf("open the stream: response %v, error %v", res, err)
	}
	a.t.Cleanup(func() {
		_ = res.Body.Close()
		client.CloseIdleConnections()
	})
	b := &browser{t: a.t, lines: bufio.NewScanner(res.Body)}
	b.lines.Buffer(nil, 1<<20)
	return b
}

// until reads the stream until a part fulfils a condition.
func until[T any](b *browser, part string, condition func(*T) bool) *T {
	b.t.Helper()
	event := ""
	for b.lines.Scan() {
		if name, ok := strings.CutPrefix(b.lines.Text(), "event: "); ok {
			event = name
		}
		data, ok := strings.CutPrefix(b.lines.Text(), "data: ")
		if !ok || event != part {
			continue
		}
		v := new(T)
		if err := json.Unmarshal([]byte(data), v); err != nil {
			b.t.Fatalf("decode part %s of the stream: %v: %s", part, err, data)
		}
		if condition(v) {
			return v
		}
	}
	b.t.Fatalf("stream ended before the expected %s: %v", part, b.lines.Err())
	return nil
}

// While the agent is down the page reports since when, and keeps its data. It recovers by itself.
func TestAgentRestart(t *testing.T) {
	a := newTestAgent(t)
	b := a.run()
	p := until(b, partAgent, func(p *agentPart) bool { return p.Since != nil })
	if p.Answers || !strings.Contains(p.Error, "start the agent") || p.Node != "w1" {
		t.Errorf("agent part without an agent = %+v, want an error with the action", p)
	}
	a.start()
	until(b, partAgent, func(p *agentPart) bool { return p.Answers && p.Agent == "v1" })
	until(b, partOutlook, func(p *outlookPart) bool { return p.Outlook != nil && len(p.Outlook.Thresholds) == 1 })
	a.mu.Lock()
	a.records = []*api.Record{{ID: "first"}}
	a.mu.Unlock()
	a.log.Info("evicted", api.EventEviction.Attr(), "victim", "shop/leaker")
	until(b, partEvictions, func(r *api.RecordsAnswer) bool { return len(r.Records) == 1 })

	a.stop()
	p = until(b, partAgent, func(p *agentPart) bool { return !p.Answers })
	if p.Agent != "v1" || p.Since == nil {
		t.Errorf("agent part after the agent stopped = %+v, want version v1 and a time", p)
	}
	a.records = []*api.Record{{ID: "second"}}
	a.start()
	until(b, partAgent, func(p *agentPart) bool { return p.Answers })
	until(b, partEvictions, func(r *api.RecordsAnswer) bool { return len(r.Records) == 2 })
	a.log.Info("garbage collected", api.EventGarbage.Attr(), "freed", 5)
	until(b, partEvents, func(e *eventsPart) bool { return len(e.Garbage) == 1 })
	a.stop()
}

// A slow query for the ranking delays neither the news of an eviction nor the signals.
func TestSlowOutlookDelaysNothing(t *testing.T) {
	a := newTestAgent(t)
	looks, ended := make(chan struct{}, 64), make(chan struct{})
	a.onLook = func() { looks <- struct{}{}; <-ended }
	a.start()
	b := a.run()
	<-looks
	a.mu.Lock()
	a.records = []*api.Record{{ID: "first"}}
	a.mu.Unlock()
	a.log.Info("evicted", api.EventEviction.Attr(), "victim", "shop/leaker")
	until(b, partEvictions, func(r *api.RecordsAnswer) bool { return len(r.Records) == 1 })
	before := until(b, partState, func(*statePart) bool { return true })
	until(b, partState, func(p *statePart) bool { return p.State.Time.After(before.State.Time) })
	select {
	case <-looks:
		t.Error("the query for the ranking ended before the eviction arrived, want it still blocked")
	default:
	}
	close(ended)
	a.stop()
}

// A page gets a new ranking with each query, or the reason why the last one is old.
func TestRankingIsCurrent(t *testing.T) {
	a := newTestAgent(t)
	a.start()
	b := a.run()
	first := until(b, partOutlook, func(p *outlookPart) bool { return p.Outlook != nil })
	until(b, partOutlook, func(p *outlookPart) bool { return p.Outlook != nil && p.Outlook.Time.After(first.Outlook.Time) })
	a.mu.Lock()
	a.unranked = errors.New("the pods could not be read in time")
	a.mu.Unlock()
	p := until(b, partOutlook, func(p *outlookPart) bool { return p.Error != "" })
	if !strings.Contains(p.Error, "could not be read in time") || p.Outlook == nil {
		t.Errorf("outlook part after a failed query = %+v, want the last ranking and the reason", p)
	}
	a.mu.Lock()
	a.unranked = nil
	a.mu.Unlock()
	until(b, partOutlook, func(p *outlookPart) bool { return p.Error == "" })
	a.stop()
}

// A hidden page, such as a forgotten tab, gets the state, but no ranking: the agent reads all pods for it.
func TestHiddenPageCostsNoRanking(t *testing.T) {
	a := newTestAgent(t)
	var looks atomic.Int32
	a.onLook = func() { looks.Add(1) }
	a.start()
	b := a.runWith("&hidden=1")
	last := until(b, partState, func(*statePart) bool { return true })
	for range 3 {
		last = until(b, partState, func(p *statePart) bool { return p.State.Time.After(last.State.Time) })
	}
	if n := looks.Load(); n != 0 {
		t.Errorf("queries for the ranking of a hidden page = %d, want 0", n)
	}
	a.stop()
}

// The ranking is queried each second while a page is shown, and less often without a new connection: the page connects again when
// it is used.
func TestForgottenPageCostsFewRankings(t *testing.T) {
	b := newBoard(Options{})
	expect := func(what string, after, want time.Duration) {
		t.Helper()
		if got := b.outlookInterval(noon.Add(after)); got != want {
			t.Errorf("interval %s = %v, want %v", what, got, want)
		}
	}
	expect("without a page", 0, 0)
	hide := b.connect(noon, true)
	expect("with a hidden page", 0, 0)
	first := b.connect(noon, false)
	expect("with a page", attention-1, pollInterval)
	expect("with a page that is not used", attention, idleInterval)
	second := b.connect(noon.Add(time.Hour), false)
	first()
	expect("with a page that is used again", time.Hour, pollInterval)
	second()
	hide()
	expect("after the last page", time.Hour, 0)
}

// A port in use is an error with the action.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = Run(t.Context(), Options{Listen: l.Addr().String()}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "choose a free port") {
		t.Errorf("port in use: error = %v, want the action", err)
	}
	if err := Run(t.Context(), Options{Listen: "0.0.0.0:0"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "ssh -L") {
		t.Errorf("address not on loopback: error = %v, want the action", err)
	}
}

// pipes is a listener with unbuffered connections that follow the test's clock.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (*pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5388} }

// open requests the stream on a new connection, and reads the header.
func (p *pipes) open(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	client, server := net.Pipe()
	p.conns <- server
	go func() {
		_, _ = io.WriteString(client, "GET /stream?key=secret HTTP/1.1\r\nHost: 127.0.0.1:5388\r\n\r\n")
	}()
	r := bufio.NewReader(client)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(line, "200") {
		return client, nil
	}
	return client, r
}

// A browser that reads nothing is disconnected; one that reads stays connected however long nothing changes. Neither blocks writers. More
// than maxStreams browsers are rejected.
func TestSlowBrowsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := testHandler()
		p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- serve(ctx, p, h) }()
		slow, _ := p.open(t)
		fine, reads := p.open(t)
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, reads)
			ended <- err
		}()
		for i := range 3 {
			h.board.setState(noon, stateAt(noon.Add(time.Duration(i)*time.Second), 1))
			time.Sleep(time.Second) // on the test's clock
		}
		synctest.Wait()
		if n := h.streams.Load(); n != 2 {
			t.Errorf("%d open streams, want 2", n)
		}
		time.Sleep(writeTimeout + time.Second)
		synctest.Wait()
		if n := h.streams.Load(); n != 1 {
			t.Errorf("%d open streams, want 1 after the slow one timed out", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("the reading browser was disconnected: %v", err)
		default:
		}
		var more []net.Conn
		for range maxStreams {
			c, r := p.open(t)
			if more = append(more, c); len(more) == maxStreams && r != nil {
				t.Errorf("stream accepted beyond the limit of %d", maxStreams)
			}
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		for _, c := range append(more, slow, fine) {
			_ = c.Close()
		}
		if err := <-ended; err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.ErrClosedPipe) {
			t.Log(err)
		}
	})
}

// recent serves the records that a test has set.
type recent struct {
	*records.Queue // nil: no follower
	agent          *testAgent
}

func (r recent) Recent() ([]*api.Record, bool) {
	r.agent.mu.Lock()
	defer r.agent.mu.Unlock()
	return append([]*api.Record{}, r.agent.records...), true
}
