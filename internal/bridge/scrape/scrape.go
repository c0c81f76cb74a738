// Package scrape serves the bridge's metrics to Prometheus. It writes the text itself, as the agent
// does: one bridge runs on each node, and github.com/prometheus/client_golang adds 21 packages.
//
//	scrape.go  Requests: the counters; Families: the metrics; Server: the listener
package scrape

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"jettison/internal/base/httpserver"
	"jettison/internal/bridge/kube"
	"jettison/internal/node/metrics"
)

// Families are the bridge's families, in the order in which they are written.
// docs/reference/metrics.md lists them.
var Families = []metrics.Family{
	{Name: "bridge_build_info", Type: "gauge", Labels: "version",
		Meaning: "Always 1. The label is the version of the bridge."},
	{Name: "bridge_evictions_pending", Type: "gauge",
		Meaning: "Evictions whose status or events may still need a write."},
	{Name: "bridge_requests_total", Type: "counter", Labels: "verb,resource,result",
		Meaning: "Requests to the API server by result: ok, conflict, not_found, denied, server_error, " +
			"unreachable. Lists and watches of pods are not counted."},
}

// Limits of connections and requests. Any pod that a NetworkPolicy admits may connect.
const (
	maxConnections = 16
	maxPerAddress  = 4
	maxHeader      = 8 << 10 // bytes
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	idleTimeout    = 90 * time.Second // longer than the usual interval of scrapes
	closeTimeout   = 2 * time.Second
	answerTimeout  = 15 * time.Second
)

// Requests counts requests to the API server. The zero value is ready for use.
type Requests struct{ counts metrics.Vec }

// Add counts a request.
func (r *Requests) Add(verb, resource string, result kube.Failure) {
	r.counts.Add(1, verb, resource, result.String())
}

// Source has the values that a Server writes.
type Source struct {
	Version  string
	Requests *Requests
	Pending  func() int64 // evictions
}

// Text returns all families in the text format of Prometheus.
func (s *Source) Text() []byte {
	var w metrics.Writer
	for _, f := range Families {
		name := metrics.Prefix + f.Name
		w.Family(name, f.Type, f.Meaning)
		switch f.Name {
		case "bridge_build_info":
			w.Sample(name, 1, time.Time{}, "version", s.Version)
		case "bridge_evictions_pending":
			w.Sample(name, float64(s.Pending()), time.Time{})
		case "bridge_requests_total":
			w.Vec(name, &s.Requests.counts, "verb", "resource", "result")
		}
	}
	metrics.Process(&w, "/proc")
	return w.Text()
}

// ValidateAddress returns an error if an address has no port. An empty address is valid.
func ValidateAddress(address string) error {
	if address == "" {
		return nil
	}
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return fmt.Errorf("metrics address %.64q: want HOST:PORT, such as :10271", address)
	}
	return nil
}

// Server serves GET /metrics until it is closed. A nil Server serves nothing.
type Server struct{ http *httpserver.Server }

// Listen listens on an address and serves. It returns nil without an address.
func Listen(ctx context.Context, address string, s *Source) (*Server, error) {
	if address == "" {
		return nil, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("metrics address: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(s.Text()) // the client may have disconnected
	})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpserver.SkipBody(w, r)
		mux.ServeHTTP(w, r)
	})
	return &Server{httpserver.Start(context.WithoutCancel(ctx), l, httpserver.Options{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout,
		WriteTimeout: 2 * requestTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		MaxConnections: maxConnections, MaxPerAddress: maxPerAddress, AnswerTimeout: answerTimeout,
	})}, nil
}

// Close ends the server, after the requests in flight.
func (s *Server) Close() {
	if s != nil {
		s.http.Shutdown(closeTimeout)
	}
}
