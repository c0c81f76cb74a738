// Package statusserver serves health, metrics and status of the cluster's programs over HTTP. Any
// pod may connect, and a browser on this host, so that connections and requests are limited.
package statusserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"jettison/internal/base/httpserver"
	"jettison/internal/cluster/report"
)

// Limits of connections and requests.
const (
	maxConnections  = 32
	maxPerAddress   = 8       // so that no pod uses all places
	maxHeader       = 8 << 10 // bytes
	headerTimeout   = 5 * time.Second
	requestTimeout  = 10 * time.Second
	responseTimeout = 60 * time.Second
	idleTimeout     = 30 * time.Second
	shutdownTimeout = 2 * time.Second
	// answerTimeout is the time after which another connection may replace one whose response is not
	// complete. The largest response takes about a second.
	answerTimeout = 15 * time.Second
	// maxScrapes limits the responses of Metrics in progress. Each holds all metrics in memory until
	// the client has read them.
	maxScrapes = 4
)

// Serve serves a listener until ctx ends. It returns an error if the server stops earlier.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := httpserver.Start(context.WithoutCancel(ctx), l, httpserver.Options{
		Handler: checkHost(h), ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout,
		WriteTimeout: responseTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		MaxConnections: maxConnections, MaxPerAddress: maxPerAddress, AnswerTimeout: answerTimeout,
	})
	defer s.Shutdown(shutdownTimeout)
	select {
	case <-s.Served():
		return s.Err()
	case <-ctx.Done():
		return nil
	}
}

// Metrics serves the metrics of a registry, with status 503 beyond maxScrapes.
func Metrics(registry *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// IsLocal reports whether a request comes from this host over loopback.
func IsLocal(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// checkHost rejects requests over loopback for names that a page in a browser may have chosen.
func checkHost(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpserver.SkipBody(w, r)
		if IsLocal(r) && httpserver.IsNamedHost(r.Host) {
			WriteJSON(w, http.StatusForbidden, report.Error{Error: fmt.Sprintf(
				"host %.60q is not localhost: use localhost or an address", r.Host)})
			return
		}
		h.ServeHTTP(w, r)
	})
}

// WriteJSON writes a response with a value as JSON.
func WriteJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value) // the client may have disconnected
}
